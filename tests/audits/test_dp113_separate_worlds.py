"""Processes that were started together and train without each other are an error."""

from __future__ import annotations

import pytest

from paceline.audits.dp113_separate_worlds import SeparateWorlds
from tests.audits.observed_events import ended, found, group, job, started, step, unwrapped, without, wrapped


def apart(rank, *, steps=3, world=2):
    """A process that makes a group of its own."""
    return [started(rank, world), group(0, 1), *(unwrapped(number) for number in range(1, steps + 1))]


def test_processes_of_which_each_is_rank_0_of_1_are_an_error():
    """Named with the line that makes the group."""
    (finding,) = found(SeparateWorlds, {rank: apart(rank) for rank in range(2)})

    assert (finding.severity, finding.faults, finding.line) == ("error", ["F128"], 5)
    assert "ranks 0 and 1 train apart, each rank 0 of a process group of 1" in finding.message


def test_groups_of_two_in_a_job_of_four_are_two_trainings():
    """Their two ranks 0 are named."""
    ranks = {rank: [started(rank, 4), group(rank % 2, 2), unwrapped(1)] for rank in range(4)}

    (finding,) = found(SeparateWorlds, ranks)

    assert "4 processes were started together, and ranks 0 and 2 train apart" in finding.message


@pytest.mark.parametrize("steps", [3, 20])
def test_steps_without_any_group_are_an_error_at_the_end_or_after_many(steps):
    """Before, the group may still come."""
    end = [ended(steps)] if steps < 20 else []
    ranks = {rank: [started(rank), *(unwrapped(n + 1) for n in range(steps)), *end] for rank in range(2)}

    (finding,) = found(SeparateWorlds, ranks)

    assert "without a process group" in finding.message
    assert found(SeparateWorlds, {rank: [started(rank), unwrapped(1)] for rank in range(2)}) == []


def test_ranks_of_one_group_are_fine():
    """Also where only the wrapper shows the group."""
    assert found(SeparateWorlds, job(lambda rank: [step(1), ended(1)])) == []
    ranks = {rank: [started(rank), wrapped(size=2), step(1), ended(1)] for rank in range(2)}
    assert found(SeparateWorlds, ranks) == []


def test_wrappers_of_groups_of_one_join_nobody():
    """The group was not seen, its size was."""
    ranks = {rank: [started(rank), wrapped(size=1), step(1), ended(1)] for rank in range(2)}

    assert len(found(SeparateWorlds, ranks)) == 1


def test_a_second_process_that_only_prepares_data_is_no_second_training():
    """It makes a group of its own and takes no step."""
    ranks = {0: apart(0, world=3), 1: [started(1, 3), group(0, 1)], 2: [started(2, 3), unwrapped(1)]}

    assert found(SeparateWorlds, ranks) == []


def test_processes_that_take_no_step_are_fine():
    """Preprocessing needs no group."""
    assert found(SeparateWorlds, {rank: [started(rank), ended(0)] for rank in range(2)}) == []


def test_rank_0_that_trains_alone_is_fine():
    """Something small before the group is made, or a script that leaves on other ranks."""
    ranks = {0: [started(0), unwrapped(1), ended(1)], 1: [started(1), ended(0)]}

    assert found(SeparateWorlds, ranks) == []


def test_one_process_is_a_world():
    """World size 1."""
    assert found(SeparateWorlds, {0: apart(0, world=1)}) == []


def test_a_rank_that_wrote_nothing_gives_no_finding():
    """One process alone does not show it."""
    assert found(SeparateWorlds, without({rank: apart(rank) for rank in range(2)}, 1)) == []
