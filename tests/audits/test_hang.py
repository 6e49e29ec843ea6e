"""A hang ends with a card that names the rank and the line."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from paceline.audits.hang import Hang, Seen, card, diagnose
from paceline.observe.probes.group_collectives import GroupCollectives
from paceline.pool.warm_ranks import RankTimeout, run_ranks
from paceline.records.observed import Collective, CollectiveDone
from paceline.records.place import Place, place_in_stacks
from paceline.records.reader import EventStream
from tests.observe import ranks

STACK = """\
Thread 0x00007f0000000001 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait

Current thread 0x00007f0000000002 (most recent call first):
  File "/opt/env/site-packages/torch/distributed/distributed_c10d.py", line 3210 in all_reduce
  File "/home/me/train.py", line 42 in step
  File "/home/me/train.py", line 60 in <module>
"""
needs_trace = pytest.mark.skipif(bool(GroupCollectives.missing()), reason="torch 2.14 and newer tell of collectives")


def call(seq: int, op: str = "all_reduce", size: int = 8) -> Collective:
    """One of the group of all."""
    return Collective(seq=seq, op=op, bytes=size, dtype="float32", group="0", size=2)


def seen(folder: Path, rank: int, stack: str) -> Seen:
    """From what a rank left behind."""
    events = list(EventStream(folder / f"rank-{rank}.jsonl"))
    calls = [each for each in events if isinstance(each, Collective)]
    return Seen(stack, calls, frozenset(each.seq for each in events if isinstance(each, CollectiveDone)))


def hang_of(function: object, world: int, folder: Path) -> Hang:
    """Let it hang, and look. A first call starts the server of ranks, whose import of torch takes from no patience."""
    run_ranks(ranks.nothing, world, timeout_s=120.0)
    with pytest.raises(RankTimeout) as caught:
        run_ranks(function, world, str(folder), timeout_s=3.0)
    return diagnose({rank: seen(folder, rank, caught.value.stacks[rank]) for rank in range(world)})


def line_of(function: object, text: str) -> int:
    """Where it stands in the file."""
    source, first = inspect.getsourcelines(function)
    return first + max(number for number, line in enumerate(source) if text in line)


@needs_trace
def test_the_rank_that_does_not_come_is_named_with_its_line(tmp_path: Path) -> None:
    """Three ranks, two of which wait."""
    hang = hang_of(ranks.one_stays_away, 3, tmp_path)

    assert (hang.kind, hang.culprits) == ("missing", (1,))
    assert hang.where[1].line == line_of(ranks.elsewhere, "sleep")
    assert hang.where[0].line == line_of(ranks.one_stays_away, "all_reduce")
    assert dict(hang.issued) == {0: 4, 1: 3, 2: 4}
    text = card(hang, 3.0)
    assert "rank 1 did not come to a collective after 3 s" in text
    assert "rank 1   has called 3 collectives, stands at" in text
    assert "rank 0   waits in all_reduce of 16 bytes, its 4th collective" in text


@needs_trace
def test_ranks_that_call_different_collectives_are_told_from_one_that_is_late(tmp_path: Path) -> None:
    """Both lines are shown."""
    hang = hang_of(ranks.different_calls, 2, tmp_path)

    assert (hang.kind, hang.culprits) == ("mismatch", (0, 1))
    assert hang.where[0].line == line_of(ranks.different_calls, "all_gather")
    assert hang.where[1].line == line_of(ranks.different_calls, "all_reduce")
    assert "different order" in card(hang)


def test_a_rank_that_has_ended_is_the_one_that_is_missing() -> None:
    """It left before the others' last call."""
    hang = diagnose(
        {
            0: Seen(STACK, [call(1), call(2)], frozenset({1})),
            1: Seen(calls=[call(1)], done=frozenset({1}), ended=True),
        }
    )

    assert (hang.kind, hang.culprits, hang.ended) == ("missing", (1,), (1,))
    assert "rank 1   has ended, after 1 collective" in card(hang)


def test_ranks_that_wait_in_the_same_call_point_at_the_network() -> None:
    """All have called it: nobody is late."""
    waiting = Seen(STACK, [call(1)], frozenset())

    assert diagnose({0: waiting, 1: waiting}).kind == "network"


def test_a_rank_for_which_the_call_is_complete_is_busy_with_something_else() -> None:
    """It has called as many as the others, and is not waiting."""
    hang = diagnose({0: Seen(STACK, [call(1)], frozenset()), 1: Seen(STACK, [call(1)], frozenset({1}))})

    assert (hang.kind, hang.culprits) == ("busy", (1,))


def test_without_traces_the_lines_are_what_is_known() -> None:
    """A loop without end on one process."""
    hang = diagnose({0: Seen(STACK)})

    assert hang.kind == "busy"
    text = card(hang, 10, root=Path("/home/me"))
    assert "no end: rank 0 has not come to an end after 10 s" in text
    assert "stands at train.py:42, in step" in text


def test_sends_and_receives_do_not_count_as_collectives() -> None:
    """Ranks send as often as they like."""
    hang = diagnose(
        {
            0: Seen(STACK, [call(1, "send"), call(2, "send"), call(3)], frozenset()),
            1: Seen(STACK, [call(1, "recv"), call(2)], frozenset()),
        }
    )

    assert hang.kind == "network"


def test_the_current_thread_is_looked_at_before_others() -> None:
    """The first own line of a thread is the innermost."""
    assert place_in_stacks(STACK) == Place(path="/home/me/train.py", line=42, function="step")
    assert place_in_stacks("(it had not started yet)") is None


def test_a_job_that_has_ended_does_not_hang() -> None:
    """Nothing is made up."""
    with pytest.raises(ValueError, match="has ended"):
        diagnose({0: Seen(ended=True)})
