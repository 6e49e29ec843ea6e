"""Logs that several ranks write."""

from __future__ import annotations

import pytest

from paceline.audits.dp154_duplicate_loggers import DuplicateLoggers
from tests.audits.loader_events import SAVE, judged, touched


def board(rank, folder="/job/runs"):
    """TensorBoard's file of a rank."""
    return touched(f"{folder}/events.out.tfevents.179605200{rank}.node.100{rank}.0")


@pytest.mark.parametrize("world", [2, 3])
def test_event_files_of_several_ranks_in_one_folder_are_a_warning(world):
    """Curves are drawn twice."""
    (found,) = judged(DuplicateLoggers, [[board(rank)] for rank in range(world)])

    assert (found.severity, found.faults, found.line, found.rank) == ("warning", ["F101"], SAVE.line, 1)
    assert found.evidence["file"] == "/job/runs"


@pytest.mark.parametrize(
    ("path", "mode", "severity"),
    [
        ("/job/metrics.csv", "append", "warning"),
        ("/job/metrics.jsonl", "write", "warning"),
        ("/job/train.log", "append", "info"),
        ("/job/train.log", "write", "info"),
        ("/job/notes.txt", "append", "info"),
    ],
)
def test_a_log_that_several_ranks_open_is_reported(path, mode, severity):
    """A table is spoiled, a text is hard to read."""
    (found,) = judged(DuplicateLoggers, [[touched(path, mode)]] * 2)

    assert (found.severity, found.evidence["file"]) == (severity, path)


def test_one_finding_for_all_logs_with_the_worst_first():
    """One cause."""
    events = [touched("/job/a.log", "append"), touched("/job/z.csv", "append")]

    (found,) = judged(DuplicateLoggers, [events] * 2)

    assert found.evidence["file"] == "/job/z.csv"


def test_one_logger_or_one_for_each_rank_is_right():
    """Rank 0's, or folders and files by rank."""
    assert judged(DuplicateLoggers, [[board(0), touched("/job/a.csv", "append")], []]) == []
    ranks = [[board(rank, f"/job/runs/{rank}"), touched(f"/job/{rank}.log", "append")] for rank in range(2)]
    assert judged(DuplicateLoggers, ranks) == []


def test_ranks_that_append_in_turn_are_right():
    """A collective lies between."""
    ranks = [[touched("/job/predictions.csv", "append", step=9, collectives=5 + rank)] for rank in range(2)]

    assert judged(DuplicateLoggers, ranks) == []


def test_other_machines_and_readers_are_passed_over():
    """/job may be another disk there."""
    assert judged(DuplicateLoggers, [[board(0)], [board(1)]], hosts=["a", "b"]) == []
    assert judged(DuplicateLoggers, [[touched("/job/a.csv", "append")], [touched("/job/a.csv", "read")]]) == []


def test_a_result_that_is_written_after_training_is_another_audit_s():
    """DP151: the same file."""
    assert judged(DuplicateLoggers, [[touched("/job/predictions.csv", step=9)]] * 2) == []
