"""Where each rank is when a run does not come to its end: the user's line, and the collective in which it waits.

A rank that still runs is asked for its stack (`script_rank.enter` registered the handler). One that failed left its
traceback. A rank waits if neither it nor its loader processes use the processor.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from paceline.pool.rank import stack_file, stack_signal
from paceline.records.parity import ParityEnd, RankStanding
from paceline.records.place import Place, place_in_stacks, place_in_traceback, places_in

_PATIENCE_S = 3.0
_LOOK_S, _BUSY_SHARE = 1.0, 0.05
"""A rank that uses less of one core for so long waits."""
_BACKWARD = ("_engine_run_backward",)


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
    waiting = _idle([pid for pid, code in zip(pids, codes, strict=True) if code is None])
    for pid in waiting:
        _ask(pid)
    stacks = _answers([rank for rank, code in enumerate(codes) if code is None], folder)
    dead = {rank: stack_file(str(folder), rank) for rank, code in enumerate(codes) if code is not None and code < 0}
    stacks |= {rank: path.read_text(errors="replace") for rank, path in dead.items() if path.exists()}
    found = []
    for rank, (pid, code, end) in enumerate(zip(pids, codes, ends, strict=True)):
        if code is None:
            found.append(standing_in(rank, stacks.get(rank, ""), waits=waiting[pid]))
        elif code < 0:  # a signal: gloo aborts where sizes differ
            stack = stacks.get(rank, "")
            found.append(_standing(rank, "failed", _collective(stack), place_in_stacks(stack)))
        elif code:
            place = place_in_traceback(end.error) if end is not None else None
            found.append(_standing(rank, "failed", "", place))
        else:
            found.append(RankStanding(rank=rank, state="ended"))
    return found


def standing_in(rank: int, stack: str, *, waits: bool) -> RankStanding:
    """Where a rank is by its stack.

    Args:
        rank: its number.
        stack: of all its threads, as faulthandler writes it.
        waits: it uses no processor.
    """
    return _standing(rank, "waits" if waits else "runs", _collective(stack), place_in_stacks(stack))


def words(ranks: Sequence[RankStanding]) -> str:
    """In a sentence: "rank 0 waits in all_reduce at train.py:31, rank 1 has ended"."""
    return ", ".join(_words(each) for each in ranks)


def is_hang(ranks: Sequence[RankStanding]) -> bool:
    """No rank computes, and some wait: more time would not help."""
    return any(each.state == "waits" for each in ranks) and all(each.state != "runs" for each in ranks)


def _words(one: RankStanding) -> str:
    state = {"ended": "has ended", "failed": "failed"}.get(one.state, one.state)
    within = f" in {one.call}" if one.call else ""
    where = f" at {Path(one.path).name}:{one.line}" if one.path else ""
    return f"rank {one.rank} {state}{within}{where}"


def _standing(rank: int, state: str, call: str, place: Place | None) -> RankStanding:
    if place is None:
        return RankStanding(rank=rank, state=state, call=call)
    function = "" if place.function == "<module>" else place.function
    return RankStanding(rank=rank, state=state, call=call, path=place.path, line=place.line, function=function)


def _collective(stack: str) -> str:
    """The function of torch through which the user's innermost line waits for other ranks; empty if unknown."""
    place, call = place_in_stacks(stack), ""
    if place is None:
        return ""
    for thread in stack.split("(most recent call first):"):
        frames = places_in(thread)  # innermost first
        if place not in frames:
            continue
        for frame in frames[: frames.index(place)]:
            if frame.path.endswith("distributed/distributed_c10d.py") or "_functional_collectives" in frame.path:
                call = frame.function
            elif frame.path.endswith("nn/parallel/distributed.py"):
                call = "DistributedDataParallel()" if frame.function == "__init__" else "forward of DDP"
            elif frame.function in _BACKWARD:
                call = "backward"
    return call


def _idle(pids: Sequence[int]) -> dict[int, bool]:
    """True if each of these processes, with those that it started, uses no processor for a moment."""
    before = {pid: _processor_s(pid) for pid in pids}
    time.sleep(_LOOK_S if pids else 0)
    return {pid: _processor_s(pid) - before[pid] < _BUSY_SHARE * _LOOK_S for pid in pids}


def _processor_s(pid: int) -> float:
    try:
        rank = psutil.Process(pid)
        times = [each.cpu_times() for each in (rank, *rank.children(recursive=True))]
    except psutil.Error:
        return 0.0
    return float(sum(each.user + each.system for each in times))


def _ask(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, stack_signal())


def _answers(ranks: Sequence[int], folder: Path) -> dict[int, str]:
    """Their stacks; each is complete when it has stopped growing."""
    deadline, sizes = time.monotonic() + _PATIENCE_S, dict.fromkeys(ranks, -1)
    paths = {rank: stack_file(str(folder), rank) for rank in ranks}
    while time.monotonic() < deadline:
        time.sleep(0.1)
        now = {rank: path.stat().st_size if path.exists() else 0 for rank, path in paths.items()}
        if now == sizes and all(now.values()):
            break
        sizes = now
    return {rank: path.read_text(errors="replace") for rank, path in paths.items() if path.exists()}
