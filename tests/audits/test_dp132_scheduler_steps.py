"""A schedule runs at the pace of the optimizer, whatever the number of ranks."""

from __future__ import annotations

import pytest

from paceline.audits.dp132_scheduler_steps import SchedulerSteps
from paceline.records.observed_rank import SchedulerSeen, StateRestored
from tests.audits.observed_events import at, ended, found, job, loader_ended, step, without


def scheduler(horizon=None):
    """One that was made before the first step."""
    return SchedulerSeen(kind="CosineAnnealingLR", horizon=horizon, place=at(12))


def steps(count=8, times=2, **other):
    """Steps, and steps of the scheduler after each."""
    return [step(number, scheduler_steps=times, **other) for number in range(1, count + 1)]


def test_a_scheduler_that_steps_once_per_rank_is_a_warning():
    """Twice at each of two ranks' steps."""
    (finding,) = found(SchedulerSteps, job(lambda rank: [scheduler(), *steps(), ended(8, scheduler_steps=16)]))

    assert (finding.severity, finding.faults, finding.rank, finding.line) == ("warning", ["F33"], 0, 12)
    assert "steps 2 times at each optimizer step" in finding.message


def test_a_schedule_made_for_the_unsharded_data_is_a_warning():
    """Three ranks, a third of the steps."""
    (finding,) = found(
        SchedulerSteps,
        job(
            lambda rank: [scheduler(300), loader_ended(exhausted=False), ended(100, scheduler_steps=100)],
            world=3,
        ),
    )

    assert "made for 300 steps, 3 times the 100 steps that the run took" in finding.message
    assert "len(loader)" in finding.advice


def test_a_schedule_that_ends_too_early_is_a_warning():
    """It was made for the steps of the run, and stepped twice as often."""
    events = [scheduler(100), *steps(), ended(100, scheduler_steps=200)]

    assert len(found(SchedulerSteps, job(lambda rank: events))) == 1
    assert found(SchedulerSteps, job(lambda rank: events[:-1])) == []


@pytest.mark.parametrize(
    "events",
    [
        [scheduler(200), *steps(), ended(100, scheduler_steps=200)],
        [scheduler(), *steps(times=1), ended(8, scheduler_steps=8)],
        [scheduler(100), *steps(times=1), ended(100, scheduler_steps=100)],
        [scheduler(20), *steps(times=0), ended(100, scheduler_steps=20)],
        [scheduler(200), *steps(times=0), ended(100, scheduler_steps=10)],
        [scheduler(), *steps(4)],
        [scheduler(), *steps(backwards=2)],
        [scheduler(), scheduler(), *steps()],
        [scheduler(), *[each for each in steps(20) if each.step % 3]],
        [
            scheduler(200),
            StateRestored(what="optimizer", name="SGD", step=0, after_wrap=False),
            ended(100, scheduler_steps=100),
        ],
        [scheduler(200), loader_ended(backwards=50, exhausted=False), ended(100, scheduler_steps=100)],
        [*steps()],
    ],
    ids=[
        "stepped once per rank for a schedule of that length, as Accelerate does",
        "once per step",
        "made for the steps that were taken",
        "once per epoch",
        "once per epoch, stopped early",
        "too few steps",
        "accumulation",
        "two schedulers in a chain",
        "steps that do not follow each other",
        "resumed",
        "stopped within an epoch",
        "no scheduler seen",
    ],
)
def test_other_paces_are_fine(events):
    """Each has a right explanation."""
    assert found(SchedulerSteps, job(lambda rank: events)) == []


def test_one_process_has_one_pace():
    """World size 1."""
    assert (
        found(SchedulerSteps, job(lambda rank: [scheduler(8), *steps(times=1), ended(8, scheduler_steps=8)], 1)) == []
    )


def test_a_rank_that_wrote_nothing_does_not_hide_it():
    """The evidence of one rank is complete."""
    (finding,) = found(SchedulerSteps, without(job(lambda rank: [scheduler(), *steps()]), 0))

    assert finding.rank == 1
