"""Ranks that call different collectives are an error with both calls; calls that may differ are not."""

from __future__ import annotations

import msgspec
import pytest

from paceline.audits.dp161_collectives_differ import CollectivesDiffer
from paceline.records.observed import CollectivesCounted
from tests.audits.observed_events import at, collective, ended, found, group, job, started, without


def call(number, op="all_reduce", *, line=40, size=2, **other):
    """The n-th call on the default group."""
    fields = {"group": "0", "number": number, "equal_bytes": 4, "dtype": "float32", "before": number + 3}
    return collective(op, seq=number, place=at(line), size=size, **(fields | other))


def counted(calls, *, size=2, issued=None, group="0"):
    """The counts of a rank at its end."""
    return CollectivesCounted(group=group, size=size, calls=calls, issued=issued)


def test_another_operation_is_an_error_with_both_calls_and_lines():
    """With three ranks, the one that differs from the other two is named, also where it is the lowest."""

    def events(rank):
        return [call(1, size=3), call(2, "broadcast" if rank == 0 else "all_reduce", line=50 + rank, size=3)]

    (finding,) = found(CollectivesDiffer, job(events, world=3))

    assert (finding.severity, finding.faults, finding.rank, finding.line) == ("error", ["F130", "F87"], 0, 50)
    assert "the 2nd collective of the script on the default process group differs" in finding.message
    assert "rank 1 calls all_reduce of 4 bytes (float32) at train.py:51" in finding.message
    assert "rank 0 calls broadcast" in finding.message
    assert finding.evidence["ranks"] == [0]


@pytest.mark.parametrize(
    ("other", "faults"),
    [
        ({"equal_bytes": 8}, ["F130"]),
        ({"dtype": "int32"}, ["F130"]),
        ({"root": 1}, ["F130"]),
        ({"before": 9}, ["F80", "F82"]),
    ],
)
def test_another_size_type_root_or_position_is_an_error(other, faults):
    """One of them is enough."""
    (finding,) = found(CollectivesDiffer, job(lambda rank: [call(1, **({"root": 0} | (other if rank else {})))]))

    assert (finding.severity, finding.faults, finding.rank) == ("error", faults, 1)


def test_gathered_tensors_of_different_sizes_are_named():
    """F75: the lists into which ranks gather have to be equal."""
    (finding,) = found(CollectivesDiffer, job(lambda rank: [call(1, "all_gather", equal_bytes=240 + 8 * rank)]))

    assert finding.faults == ["F75", "F130"]
    assert "pad to the largest" in finding.advice


@pytest.mark.parametrize(
    "other",
    [
        {"equal_bytes": None, "bytes": 99},  # as for objects and all_to_all
        {"place": at(77)},  # if rank == 0: broadcast(...) else: broadcast(...)
        {"before": None},  # a rank that sends to another
        {"number": None},  # after an exception that the script caught
        {"dtype": "bool"},
        {"step": 7},
    ],
)
def test_what_may_differ_between_ranks_is_no_finding(other):
    """Data of a size of its own, lines of roles, counts that sends disturb."""

    def events(rank):
        event = call(1, dtype="uint8")
        return [msgspec.structs.replace(event, **other) if rank else event, call(2)]

    assert found(CollectivesDiffer, job(events)) == []


def test_groups_are_compared_each_on_its_own():
    """Ranks 0 and 1 form a group, 2 and 3 another, of the same size; only rank 3 differs from its partner."""

    def events(rank):
        mine = call(1, "all_reduce" if rank < 2 else "all_gather", group="1" if rank < 2 else "2", equal_bytes=8)
        return [mine, call(2, group=mine.group, equal_bytes=8 + 8 * (rank == 3))]

    (finding,) = found(CollectivesDiffer, job(events, world=4))

    assert (finding.rank, finding.evidence["number"]) == (3, 2)
    assert "a process group of 2 ranks" in finding.message


def test_trainings_apart_are_not_compared():
    """Two worlds of two processes have groups of the same names."""
    ranks = {rank: [started(rank, 4), group(rank % 2, 2), call(1, equal_bytes=8 * (rank + 1))] for rank in range(4)}

    assert found(CollectivesDiffer, ranks) == []


def test_a_rank_that_ends_or_crashes_earlier_is_no_mismatch():
    """It has fewer calls, and gives no count; nor does one that wrote nothing."""
    ranks = job(lambda rank: [call(1), *([] if rank else [call(2), call(3)]), *([] if rank else [counted(3)])])

    assert found(CollectivesDiffer, ranks) == []
    assert found(CollectivesDiffer, without(ranks, 1)) == []


def test_attempts_of_a_restarted_job_are_compared_each_on_its_own():
    """The second attempt resumes, and calls other collectives first."""

    def events(rank):
        first = [] if rank else [msgspec.structs.replace(call(1), attempt=1)]
        return [*first, msgspec.structs.replace(call(1, "broadcast"), attempt=2)]

    assert found(CollectivesDiffer, job(events)) == []


@pytest.mark.parametrize(
    ("ends", "faults", "text"),
    [
        ([counted(5), counted(4)], ["F78", "F87"], "rank 0 has called 5 collectives on the default process group"),
        ([counted(5, issued=40), counted(5, issued=38)], ["F80", "F82"], "(with those of DDP), and rank 1 38"),
    ],
)
def test_another_number_of_calls_at_the_end_is_an_error(ends, faults, text):
    """Of the script's own calls, or of all where those are as many."""
    (finding,) = found(CollectivesDiffer, job(lambda rank: [call(1), ends[rank], ended(9)]))

    assert (finding.severity, finding.faults) == ("error", faults)
    assert text in finding.message


def test_a_number_that_one_rank_does_not_know_is_not_compared():
    """It has sent something to another rank."""
    ends = [counted(5, issued=40), counted(5)]

    assert found(CollectivesDiffer, job(lambda rank: [ends[rank]])) == []


def test_equal_calls_at_one_line_are_fine():
    """Over and over, as in a loop."""
    assert found(CollectivesDiffer, job(lambda rank: [call(number) for number in range(1, 9)])) == []


def test_lines_that_stay_out_of_step_are_a_warning():
    """Rank 1 skips the first of two lines once: its counts meet the losses of rank 0 from then on."""

    def events(rank):
        lines = [40, 41] * 4
        return [call(number, line=line) for number, line in enumerate(lines[rank:], start=1)]

    (finding,) = found(CollectivesDiffer, job(events))

    assert (finding.severity, finding.faults, finding.evidence["differs"]) == ("warning", ["F91", "F130"], "lines")
    assert "train.py:40" in finding.message
    assert "train.py:41" in finding.message


@pytest.mark.parametrize("op", ["all_reduce", "broadcast"])
def test_ranks_that_take_turns_at_two_lines_are_fine(op):
    """Whoever has data calls at one line, the others at another, and they come back together."""

    def events(rank):
        root = {"root": 0} if op == "broadcast" else {}
        return [
            call(number, op, line=60 if number % 3 == 0 else 40 + (rank == number % 2), **root)
            for number in range(1, 9)
        ]

    assert found(CollectivesDiffer, job(events)) == []
