"""A step after a micro-step in `no_sync` is an error where the ranks part."""

from __future__ import annotations

from paceline.audits.dp106_step_without_synchronization import StepWithoutSynchronization
from tests.audits.observed_events import NAMES, collective, found, job, states, step, without, wrapped

STEPS = (1, 2, 3, 5)


def accumulating(rank, *, synchronized=(True, False), differ=NAMES, since=1, world=2):
    """Two micro-steps a step."""
    yield wrapped()
    for number in STEPS:
        flags = list(synchronized) if number >= since else [False, True]
        yield step(number, forwards=len(flags), synchronized=flags, backwards=len(flags))
        yield from states(rank, [number], differ, since=since)


def test_a_last_micro_step_within_no_sync_is_an_error():
    """Off by one: the first of two was reduced."""
    (finding,) = found(StepWithoutSynchronization, job(accumulating))

    assert (finding.severity, finding.faults, finding.step, finding.line) == ("error", ["F25"], 1, 20)
    assert finding.message.startswith("the last of 2 micro-steps before optimizer step 1 ran within no_sync()")
    assert "rank 1 holds different values" in finding.message


def test_the_last_partial_window_is_found_at_its_step():
    """With three ranks; the steps before are right."""
    (finding,) = found(
        StepWithoutSynchronization,
        job(lambda rank: accumulating(rank, synchronized=[False], since=5), world=3),
    )

    assert finding.step == 5
    assert finding.message.startswith("the only micro-step before optimizer step 5")
    assert "ranks 1 and 2" in finding.message


def test_a_difference_that_is_older_has_another_cause():
    """The ranks parted at step 1."""

    def events(rank):
        yield from states(rank, STEPS, NAMES)
        yield step(3, synchronized=[False])

    assert found(StepWithoutSynchronization, job(events)) == []


def test_a_reduction_by_hand_within_no_sync_is_fine():
    """The ranks agree."""
    assert found(StepWithoutSynchronization, job(lambda rank: accumulating(rank, differ=()))) == []


def test_accumulation_whose_last_micro_step_is_reduced_is_fine():
    """Also the ascent of SAM within no_sync."""
    events = job(lambda rank: accumulating(rank, synchronized=[False, True], differ=()))

    assert found(StepWithoutSynchronization, events) == []


def test_a_synchronized_last_micro_step_is_not_the_cause_of_a_difference():
    """Nor are steps without any wrapped forward pass; other audits look for these."""
    for flags in ([False, True], []):
        events = job(lambda rank, flags=flags: accumulating(rank, synchronized=flags))
        assert found(StepWithoutSynchronization, events) == []


def test_local_sgd_is_left_alone():
    """All steps within no_sync, and an average now and then."""
    events = job(lambda rank: [*accumulating(rank, synchronized=[False]), collective(on="parameters", step=4)], world=3)

    assert found(StepWithoutSynchronization, events) == []


def test_a_rank_that_wrote_nothing_gives_no_finding():
    """There is nothing to compare with."""
    assert found(StepWithoutSynchronization, without(job(accumulating), 0)) == []
