"""Fingerprints of all ranks are compared at equal instants, whatever their order."""

from __future__ import annotations

from paceline.audits.divergence import Divergence, instant
from tests.audits.observed_events import NAMES, fingerprint, step


def compared(*prints, world=2):
    """Fed in this order."""
    divergence = Divergence()
    for each in prints:
        divergence.feed(each.rank, each, world)
    return divergence


def test_differences_are_in_order_of_time():
    """Whichever was complete first."""
    divergence = compared(
        *(fingerprint(rank, number, "state", NAMES) for number in (3, 1) for rank in (0, 1)),
        *(fingerprint(rank, 0, "state", ["bn.running_mean"], kind="buffer") for rank in (0, 1)),
        *(fingerprint(rank, 1, "evaluation", NAMES) for rank in (0, 1)),
    )

    assert [(each.step, each.moment, each.kind) for each in divergence.differences] == [
        (0, "state", "buffer"),
        (1, "state", "parameter"),
        (1, "evaluation", "parameter"),
        (3, "state", "parameter"),
    ]
    assert divergence.compared == [(0, "state"), (1, "state"), (1, "evaluation"), (3, "state")]


def test_gradients_that_only_another_rank_has_differ():
    """Rank 0 did not use these parameters."""
    prints = [fingerprint(rank, 1, "gradients", ["head.weight"] * rank, kind="gradient") for rank in (0, 1)]

    (difference,) = compared(*prints).differences

    assert (difference.names, difference.ranks, difference.compared) == (["head.weight"], [1], 4)


def test_two_optimizers_in_one_step_are_two_instants():
    """The second of rank 0 is not compared with the first of rank 1."""
    divergence = compared(
        *(fingerprint(rank, 1, "gradients", NAMES[:number], kind="gradient") for rank in (0, 1) for number in (1, 2))
    )

    assert [len(each.names) for each in divergence.differences] == [1, 2]


def test_moments_follow_each_other_around_a_step():
    """One of a later version comes right after the step."""
    moments = ["start", "gradients", "state", "evaluation", "end"]

    assert sorted(moments, key=lambda moment: instant(1, moment)) == moments
    assert instant(1, "gradients") < instant(1, "later") < instant(1, "evaluation") < instant(2, "start")


def test_other_events_and_single_processes_are_passed_over():
    """There is nothing to compare."""
    divergence = compared(fingerprint(0, 1, "state", NAMES), world=1)
    divergence.feed(0, step(1), 2)

    assert divergence.compared == []
