"""A hang ends with a card that names the rank and the line."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from paceline.audits.hang import Hang, Seen, card, diagnose, event_card, hang_event, hang_findings, judge_standings
from paceline.observe.probes.group_collectives import GroupCollectives
from paceline.pool.warm_ranks import RankTimeout, run_ranks
from paceline.records.launched import HangOver
from paceline.records.observed import Collective, CollectiveDone
from paceline.records.place import Place, place_in_stacks
from paceline.records.reader import EventStream
from paceline.records.standing import RankStanding
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
    assert hang.ranks[1].line == line_of(ranks.elsewhere, "sleep")
    assert hang.ranks[0].line == line_of(ranks.one_stays_away, "all_reduce")
    assert [each.number for each in hang.ranks] == [4, 3, 4]
    text = card(hang, 3.0)
    assert "rank 1 did not come to a collective after 3 s" in text
    assert "rank 1   has called 3 collectives, at" in text
    assert "rank 0   waits in all_reduce of 16 bytes, its 4th collective" in text


@needs_trace
def test_ranks_that_call_different_collectives_are_told_from_one_that_is_late(tmp_path: Path) -> None:
    """Both lines are shown."""
    hang = hang_of(ranks.different_calls, 2, tmp_path)

    assert (hang.kind, hang.culprits) == ("mismatch", (0, 1))
    assert hang.ranks[0].line == line_of(ranks.different_calls, "all_gather")
    assert hang.ranks[1].line == line_of(ranks.different_calls, "all_reduce")
    assert "different order" in card(hang)


def test_a_rank_that_has_ended_is_the_one_that_is_missing() -> None:
    """It left before the others' last call."""
    hang = diagnose(
        {
            0: Seen(STACK, [call(1), call(2)], frozenset({1})),
            1: Seen(calls=[call(1)], done=frozenset({1}), ended=True),
        }
    )

    assert (hang.kind, hang.culprits, hang.ranks[1].state) == ("missing", (1,), "ended")
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
    assert "no progress: rank 0 waits for no other rank after 10 s" in text
    assert "waits in all_reduce, at train.py:42, in step" in text


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


def standing(rank: int, call: str = "", line: int = 1, **fields: object) -> RankStanding:
    """A rank that waits, in a call or at a line of its own."""
    values = {"state": "waits", "path": "/home/me/train.py", "function": "main", **fields}
    return RankStanding(rank=rank, call=call, line=line, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize("call", ["all_reduce", "backward", "forward of DDP"])
def test_the_rank_that_waits_for_no_other_is_the_culprit(call: str) -> None:
    """DDP's own collectives have no numbers: the stacks decide."""
    hang = judge_standings([standing(0, call), standing(1), standing(2, call)], 3)

    assert (hang.kind, hang.culprits) == ("missing", (1,))


def test_a_rank_in_a_receive_is_the_one_that_others_wait_for() -> None:
    """No collective ends it."""
    hang = judge_standings([standing(0, "backward"), standing(1, "recv")], 2)

    assert (hang.kind, hang.culprits) == ("missing", (1,))
    assert "each receive needs a send" in hang.advice


def test_ranks_that_wait_in_different_calls_are_all_named() -> None:
    """Either of them may be the one that is wrong."""
    hang = judge_standings([standing(0, "barrier", 4), standing(1, "backward", 9)], 2)

    assert (hang.kind, hang.culprits) == ("mismatch", (0, 1))
    assert "wait in different collectives" in card(hang)


def test_of_three_ranks_the_one_in_another_collective_is_out_of_step() -> None:
    """All are named, since each waits; the card and the finding begin with the rank to look at first."""
    event = hang_event([standing(0, "backward", 9), standing(1, "backward", 9), standing(2, "barrier", 4)], 3)

    (finding,) = hang_findings([event])

    assert (event.kind, event.culprits, event.out_of_step) == ("mismatch", [0, 1, 2], [2])
    assert event.title == "hang: rank 2 waits in another collective than ranks 0 and 1"
    assert "look at rank 2 first" in event.advice
    assert (finding.rank, finding.line) == (2, 4)
    assert "rank 0 waits in backward" in finding.message
    assert "rank 2 waits in barrier" in finding.message


def test_without_a_majority_no_rank_is_out_of_step() -> None:
    """Two and two ranks, or three that each wait elsewhere."""
    halves = [standing(rank, "backward" if rank < 2 else "barrier", 4) for rank in range(4)]
    apart = [standing(rank, "barrier", rank + 1) for rank in range(3)]

    assert [judge_standings(each, len(each)).out_of_step for each in (halves, apart)] == [(), ()]


def test_a_rank_in_a_training_step_beside_one_in_a_collective_may_count_steps_otherwise() -> None:
    """Two collectives of the script are a branch, and have nothing to do with steps."""
    in_step = hang_event([standing(0, "barrier", 4), standing(1, "backward", 9)], 2)
    in_script = hang_event([standing(0, "barrier", 4), standing(1, "all_reduce", 9)], 2)

    assert [each.faults for each in hang_findings([in_step, in_script])] == [["F78", "F82"], ["F78"]]


def test_the_root_of_a_broadcast_may_call_it_in_a_line_of_its_own() -> None:
    """That is no mismatch; a barrier in two lines is one."""
    both = [standing(0, "broadcast", 4), standing(1, "broadcast", 9)]

    assert judge_standings(both, 2).kind == "network"
    assert judge_standings([standing(0, "barrier", 4), standing(1, "barrier", 9)], 2).kind == "mismatch"


def test_in_the_same_call_the_rank_with_fewer_collectives_is_behind() -> None:
    """It has left one out before."""
    hang = judge_standings([standing(0, "barrier", number=9), standing(1, "barrier", number=8)], 2)

    assert (hang.kind, hang.culprits) == ("missing", (1,))


def test_where_all_ranks_of_a_machine_wait_the_culprit_may_be_elsewhere() -> None:
    """Each launcher sees its own ranks."""
    here = [standing(0, "barrier"), standing(1, "barrier")]

    assert "ranks elsewhere" in judge_standings(here, 4).text[1]
    assert "ranks elsewhere" not in judge_standings(here, 2).text[1]


def test_a_stopped_process_and_one_that_has_ended_are_named_as_such() -> None:
    """They have no line."""
    waits = standing(0, "backward")
    stopped = judge_standings([waits, RankStanding(rank=1, state="stopped")], 2)
    ended = judge_standings([waits, RankStanding(rank=1, state="ended")], 2)

    assert (stopped.kind, stopped.culprits) == ("stopped", (1,))
    assert (ended.kind, ended.culprits) == ("missing", (1,))


def test_ranks_that_wait_for_no_other_are_all_named() -> None:
    """Nothing says that one of them is to blame."""
    hang = judge_standings([standing(0), standing(1, state="runs")], 2)

    assert (hang.kind, hang.culprits) == ("busy", (0, 1))


def test_a_wait_for_an_asynchronous_operation_is_known_by_its_line(tmp_path: Path) -> None:
    """It has no frame of Python."""
    script = tmp_path / "train.py"
    script.write_text("work = all_reduce(async_op=True)\nwork.wait()\n")
    one = standing(0, path=str(script), line=2)

    assert judge_standings([one, standing(1)], 2).culprits == (1,)


def test_the_usual_cause_follows_from_what_the_line_waits_in() -> None:
    """A lock, a program, a loader worker: each has its own."""

    def advice(**fields: object) -> str:
        return judge_standings([standing(0, "backward"), standing(1, **fields)], 2).advice

    assert "a lock" in advice(inside="wait of threading")
    assert "a program that does not end" in advice(inside="_try_wait of subprocess")
    assert "backtracks" in advice(inside="match of re", state="runs")
    assert "data set in a loader worker" in advice(worker=77)
    assert "a loop without end" in advice(state="runs")


def test_a_hang_is_an_error_and_one_that_went_on_an_information() -> None:
    """Users may want CI to fail on the first alone."""
    event = hang_event([standing(0, "backward", 7), standing(1, line=9)], 2)

    (stuck,) = hang_findings([event])
    (over,) = hang_findings([event, HangOver(still_s=31.0)])

    assert (stuck.code, stuck.severity, stuck.rank, stuck.line) == ("DP401", "error", 1, 9)
    assert (over.severity, over.message.endswith("it went on after 31 s")) == ("info", True)
    assert "rank 1 is at /home/me/train.py:9, in main" in stuck.message


def test_the_card_names_rank_line_what_others_wait_for_and_since_when() -> None:
    """All that somebody needs who sees it scroll by."""
    text = event_card(hang_event([standing(0, "backward", 7), standing(1, line=9)], 2), Path("/home/me"))

    assert "hang: rank 1 did not come to a collective" in text
    assert "rank 0   waits in backward, at train.py:7, in main" in text
    assert "rank 1   is at train.py:9, in main" in text
    assert "no rank has advanced for 0 s" in text
