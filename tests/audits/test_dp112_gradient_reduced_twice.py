"""The norm of a gradient that DDP has averaged does not change by the number of ranks before the step."""

from __future__ import annotations

import pytest

from paceline.audits.dp112_gradient_reduced_twice import GradientReducedTwice
from tests.audits.observed_events import at, found, job, optimizer, step, without


def steps(after=1.0, taken=1.0, count=2, **other):
    """Steps with norms after the backward pass and at the step."""
    fields = {"norm_after_backward": after, "norm_at_step": taken, "reduce_place": at(24)}
    return [step(number, **(fields | other)) for number in range(1, count + 1)]


def test_gradients_summed_once_more_are_an_error():
    """With three ranks, three times too large."""
    (finding,) = found(GradientReducedTwice, job(lambda rank: steps(taken=3.0, own_reductions=6), world=3))

    assert (finding.severity, finding.faults, finding.step, finding.line) == ("error", ["F129"], 1, 24)
    assert "3 times too large" in finding.message


def test_gradients_divided_once_more_are_an_error():
    """Half as long, with two ranks."""
    (finding,) = found(GradientReducedTwice, job(lambda rank: steps(taken=0.5)))

    assert finding.severity == "error"
    assert "2 times too small" in finding.message


def test_a_grad_scaler_between_the_two_is_taken_into_account():
    """It divides by its scale."""
    (finding,) = found(GradientReducedTwice, job(lambda rank: steps(1024.0, 2.0, own_reductions=1, unscaled_by=1024.0)))

    assert "2 times too large" in finding.message
    assert found(GradientReducedTwice, job(lambda rank: steps(1024.0, 1.0, unscaled_by=1024.0))) == []


def test_averaging_equal_gradients_again_is_only_mentioned():
    """It costs time."""
    (finding,) = found(GradientReducedTwice, job(lambda rank: steps(own_reductions=6)))

    assert finding.severity == "info"


def test_a_reduction_for_parameters_outside_the_wrapper_is_fine():
    """They need it."""
    events = job(lambda rank: [optimizer(outside=["ArcFace/weight"]), *steps(own_reductions=1)])

    assert found(GradientReducedTwice, events) == []


def test_a_sum_over_ranks_is_wrong_whatever_else_the_optimizer_holds():
    """The wrapped gradients are too large."""
    events = job(lambda rank: [optimizer(outside=["Loss/weight"]), *steps(taken=2.0, own_reductions=1)])

    assert len(found(GradientReducedTwice, events)) == 1


def test_a_multiplication_by_the_world_size_may_be_meant():
    """Where the loss is a share of a global sum."""
    (finding,) = found(GradientReducedTwice, job(lambda rank: steps(taken=2.0)))

    assert finding.severity == "info"


@pytest.mark.parametrize(
    "other",
    [
        {"taken": 1.0},
        {"taken": 0.5, "forwards": 2, "backwards": 2},
        {"taken": 0.5, "forwards": 2, "backwards": 2, "own_reductions": 1},
        {"taken": 0.5, "clips": 1},
        {"taken": 0.5, "count": 1},
        {"taken": 0.51},
        {"taken": 0.51, "own_reductions": 1},
        {"taken": 2.0, "backwards": 2, "backwards_unwrapped": 1, "own_reductions": 1},
        {"taken": 0.5, "forwards": 0, "backwards_unwrapped": 1, "own_reductions": 3},
        {"taken": 0.5, "synchronized": [False], "own_reductions": 3},
        {"taken": None},
        {"after": 0.0, "taken": 0.0},
        {"after": float("nan"), "taken": float("nan")},
    ],
    ids=[
        "equal norms",
        "divided by two micro-steps",
        "and reduced by hand",
        "clipped",
        "one step only",
        "another ratio",
        "another ratio with a reduction",
        "a second loss that is reduced by hand",
        "reduced by hand without a wrapper",
        "reduced by hand within no_sync",
        "no digests",
        "no gradient",
        "not finite",
    ],
)
def test_other_patterns_are_fine(other):
    """None of them is a second mean."""
    assert found(GradientReducedTwice, job(lambda rank: steps(**other))) == []


def test_one_process_reduces_nothing():
    """World size 1, where the ratio of equal norms is the number of ranks."""
    assert found(GradientReducedTwice, job(lambda rank: steps(own_reductions=1), world=1)) == []


def test_a_rank_that_wrote_nothing_does_not_hide_it():
    """The evidence of one rank is complete."""
    assert len(found(GradientReducedTwice, without(job(lambda rank: steps(taken=0.5)), 0))) == 1
