"""Where each rank is when a run does not come to its end: the user's line, and the collective in which it waits.

A rank that still runs is asked for its stack (`script_rank.enter` registered the handler). One that failed left its
traceback. A rank waits if neither it nor its loader processes use the processor.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from paceline.pool.rank import stack_file
from paceline.pool.stack_requests import ask_stacks, use_of
from paceline.records.parity import ParityEnd
from paceline.records.place import place_in_traceback
from paceline.records.standing import RankStanding, standing_in, standing_text

_LOOK_S, _BUSY_SHARE = 1.0, 0.05
"""A rank that uses less of one core for so long waits."""


def standings(
    pids: Sequence[int], codes: Sequence[int | None], ends: Sequence[ParityEnd | None], folder: Path
) -> list[RankStanding]:
    """Where the ranks of a run are, before they are ended.

    Args:
        pids: of the ranks.
        codes: exit codes; None for a rank that still runs.
        ends: what ranks wrote at their end.
        folder: of the run.
    """
    paths = {rank: stack_file(str(folder), rank) for rank in range(len(pids))}
    alive = {pid: paths[rank] for rank, (pid, code) in enumerate(zip(pids, codes, strict=True)) if code is None}
    waiting = _idle(list(alive))
    stacks = ask_stacks(alive)
    found = []
    for rank, (pid, code, end) in enumerate(zip(pids, codes, ends, strict=True)):
        if code is None:
            found.append(standing_in(rank, stacks.get(pid, ""), state="waits" if waiting[pid] else "runs"))
        elif code < 0:  # a signal: gloo aborts where sizes differ
            stack = paths[rank].read_text(errors="replace") if paths[rank].exists() else ""
            found.append(standing_in(rank, stack, state="failed"))
        elif code:
            place = place_in_traceback(end.error) if end is not None else None
            found.append(RankStanding(rank=rank, state="failed").at(place))
        else:
            found.append(RankStanding(rank=rank, state="ended"))
    return found


def words(ranks: Sequence[RankStanding]) -> str:
    """In a sentence: "rank 0 waits in all_reduce, at train.py:31, in evaluate; rank 1 has ended"."""
    return "; ".join(f"rank {each.rank} {_text(each)}" for each in ranks)


def is_hang(ranks: Sequence[RankStanding]) -> bool:
    """No rank computes, and some wait: more time would not help."""
    return any(each.state == "waits" for each in ranks) and all(each.state != "runs" for each in ranks)


def _text(one: RankStanding) -> str:
    return standing_text(one, None if one.path is None else Path(one.path).parent)


def _idle(pids: Sequence[int]) -> dict[int, bool]:
    """True if each of these processes, with those that it started, uses no processor for a moment."""
    before = {pid: use_of(pid).cpu_s for pid in pids}
    time.sleep(_LOOK_S if pids else 0)
    return {pid: use_of(pid).cpu_s - before[pid] < _BUSY_SHARE * _LOOK_S for pid in pids}
