"""The rank that others wait for is named by the times at which ranks are done, not by durations."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import msgspec
import pytest

from paceline.audits.dp162_straggler import Straggler
from paceline.audits.run_state import RunState
from paceline.records.event import Event
from paceline.records.observed import StepTiming
from paceline.records.observed_rank import ObservedStep
from tests.audits.observed_events import Ranks, at, collective, found, job, started, step, wrapped

Times = Callable[[int, int], tuple[float, float, float]]
"""times(rank, step): when a backward pass begins, is done and ends, since the step began."""


def timed(times: Times, steps: Iterable[int] = range(1, 41), *, step_s: float = 0.064, world: int = 2) -> Ranks:
    """A job whose steps begin at the same time on all ranks."""

    def events(rank: int) -> list[Event]:
        made: list[Event] = [wrapped()]
        for number in steps:
            begun, done, ended = (100.0 + number * step_s + each for each in times(rank, number))
            made.append(step(number, backward_begun_s=begun, backward_done_s=done, backward_ended_s=ended))
            made.append(StepTiming(step=number, duration_s=step_s if number > 1 else None))
        return made

    return job(events, world)


def late(rank: int, *, by: float = 0.06) -> tuple[float, float, float]:
    """Rank 1 takes 60 ms more in its backward pass, and all end together."""
    return 0.001, 0.002 + by * (rank == 1), 0.003 + by


def test_a_rank_that_sleeps_in_its_backward_pass_is_named() -> None:
    """Its steps take as long as those of the others."""
    (finding,) = found(Straggler, timed(lambda rank, _: late(rank)))

    assert (finding.code, finding.severity, finding.faults, finding.rank) == ("DP162", "info", ["F127"], 1)
    assert finding.line == 21
    assert finding.message == (
        "rank 1 is the last to finish its part of the backward pass in 40 of 40 recorded steps: the others wait a "
        "median 60 ms for it, which it spends within the backward pass; that is 94% of a step of 64 ms"
    )
    assert finding.evidence["phase"] == "within"


def test_a_rank_that_is_late_before_its_backward_pass_is_told_from_one_that_is_slow_within() -> None:
    """It loads its data for longer."""
    (finding,) = found(
        Straggler, timed(lambda rank, _: (0.001 + 0.02 * (rank == 1), 0.002 + 0.02 * (rank == 1), 0.023))
    )

    assert "which it spends before the backward pass" in finding.message
    assert "loading of its data" in finding.advice


def test_work_that_nobody_waits_for_is_no_lateness() -> None:
    """Rank 1 goes on for 60 ms after its last gradient, and the others have ended by then."""
    assert (
        found(Straggler, timed(lambda rank, _: (0.001, 0.002 + 0.06 * (rank == 1), 0.003 + 0.06 * (rank == 1)))) == []
    )


@pytest.mark.parametrize(
    ("times", "steps", "step_s"),
    [
        (lambda rank, _: late(rank), range(1, 20), 0.064),
        (lambda rank, _: late(rank, by=0.0019), range(1, 41), 0.01),
        (lambda rank, _: late(rank, by=0.02), range(1, 41), 0.5),
        (lambda rank, number: late(rank if number % 4 else 1 - rank), range(1, 41), 0.064),
    ],
    ids=["19 steps", "2 ms", "5 % of a step", "3 of 4 steps"],
)
def test_little_or_changing_lateness_is_no_finding(times: Times, steps: Iterable[int], step_s: float) -> None:
    """Each limit alone."""
    assert found(Straggler, timed(times, steps, step_s=step_s)) == []


def test_noise_of_a_busy_machine_is_no_finding() -> None:
    """Whichever rank is last, by up to half a step: in 80 jobs with two and with three ranks."""
    random_ = random.Random(0)
    for world in (2, 3):
        for _ in range(40):
            lateness = {(rank, each): random_.uniform(0, 0.03) for rank in range(world) for each in range(1, 41)}

            def times(rank: int, number: int, lateness: dict = lateness) -> tuple[float, float, float]:
                return 0.001, 0.002 + lateness[rank, number], 0.035

            audit = Straggler(RunState())
            for rank, events in timed(times, world=world).items():
                for event in events:
                    audit.run.feed(rank, event)
                    audit.feed(rank, event)
            assert audit.findings() == []


def test_of_three_ranks_the_late_one_is_compared_with_the_median_of_the_others() -> None:
    """Ranks 0 and 2 wait."""
    (finding,) = found(Straggler, timed(lambda rank, _: late(rank), world=3))

    assert finding.rank == 1
    assert finding.evidence["wait_s"] == pytest.approx(0.06)


def test_ranks_of_two_machines_are_not_compared() -> None:
    """Their clocks differ, whatever the hosts are called."""
    ranks = timed(lambda rank, _: late(rank))
    elsewhere = {**ranks, 1: [msgspec.structs.replace(started(1), host="other"), *ranks[1][1:]]}
    same_name = timed(lambda rank, _: tuple(each + 5000.0 * rank for each in late(rank)))  # type: ignore[misc,arg-type]

    assert found(Straggler, elsewhere) == []
    assert found(Straggler, same_name) == []


def _unsynchronized(event: Event) -> Event:
    return msgspec.structs.replace(event, synchronized=[False]) if isinstance(event, ObservedStep) else event


def test_micro_steps_without_synchronization_are_not_compared() -> None:
    """Ranks do not wait for each other in them."""
    ranks = timed(lambda rank, _: late(rank))
    alone = {rank: [_unsynchronized(each) for each in events] for rank, events in ranks.items()}

    assert found(Straggler, alone) == []


def test_without_ddp_the_first_collective_of_each_step_counts() -> None:
    """The script reduces its gradients itself."""

    def events(rank: int) -> list[Event]:
        made: list[Event] = []
        for number in range(40):
            issued = 100.0 + number * 0.05 + 0.03 * (rank == 0)
            for call, later in ((2 * number + 1, 0.0), (2 * number + 2, 0.001)):
                made.append(
                    collective(step=number, number=call, group="0", size=2, issued_s=issued + later, place=at(50))
                )
            made += [step(number + 1), StepTiming(step=number + 1, duration_s=0.05)]
        return made

    (finding,) = found(Straggler, job(events))

    assert (finding.rank, finding.line) == (0, 50)
    assert "the last to come to the first collective in 40 of 40 recorded steps" in finding.message
    assert "30 ms for it; that is 60% of a step" in finding.message
