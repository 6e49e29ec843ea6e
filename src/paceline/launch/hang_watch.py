"""Notice that no rank of this machine advances, and ask each where it is.

Ranks count their steps, collectives and batches in their rings. A pause is suspected after a patience that follows the
job's own rhythm (`Rhythm`). Then each process is asked for its stacks twice, two seconds apart. Before the third step
only a job that uses no processor is reported. A rank that computes with torch, or that moves data, gets more time: it
may evaluate or save. `judge` decides who the culprit is; launch knows no audits.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from paceline.pool.stack_requests import ProcessUse, ask_stacks, main_thread_s, spy_stacks, state_of, use_of
from paceline.records.launched import HangOver, HangSeen
from paceline.records.ring import Progress
from paceline.records.standing import BACKWARD, FORWARD, RankStanding, stack_path, standing_in, worker_place, works

LEAST_S = 10.0
"""Shortest pause that is suspected."""
_EARLY, _WORKING = 3.0, 6.0
"""Times the least pause before the third step, and times the patience where a rank may only be slow."""
_REGULAR_STEPS = 3
_STEPS, _GAPS = 12.0, 2.0
"""Times the 99th percentile of the step intervals, and the longest pause that the job went on from."""
_KEPT = 1000
_STOPPED_S = 5.0
"""The launcher reads rings every 0.25 s; if it was away for so long, it was stopped itself, or the machine slept."""
_BETWEEN_S = 2.0
_BUSY_SHARE = 0.1
"""A rank that uses less of one core waits."""
_MOVED_BYTES_PER_S = 1 << 19
_MOST_CARDS = 3
"""Further hangs of a job are recorded and not shown."""


class Rhythm:
    """How often the ranks of a job advance, and for how long a pause is normal.

    Args:
        least_s: shortest pause that is suspected.

    Attributes:
        moved_s: when a rank advanced last.
        regular: enough steps were done to know what is normal.
    """

    def __init__(self, least_s: float = LEAST_S) -> None:
        self.least_s, self.moved_s, self.regular = least_s, math.inf, False
        self._counts: dict[int, tuple[int, ...]] = {}
        self._intervals: deque[float] = deque(maxlen=_KEPT)
        self._step, self._step_s, self._fed_s, self._longest_s = 0, 0.0, math.inf, 0.0

    def feed(self, now: float, ranks: Mapping[int, Progress]) -> bool:
        """Take the progress of all ranks; True if one of them advanced.

        Args:
            now: on the monotonic clock.
            ranks: progress by rank.
        """
        away, self._fed_s = now - self._fed_s > _STOPPED_S, now
        counts: dict[int, tuple[int, ...]] = {
            rank: (each.pid, each.steps, each.entered, each.left, each.batches) for rank, each in ranks.items()
        }
        if counts == self._counts:
            self.moved_s = now if away else self.moved_s
            return False
        self._counts = counts
        if self.regular and not away:
            self._longest_s = max(self._longest_s, now - self.moved_s)
        step = max(each.steps for each in ranks.values())
        if step != self._step:
            if self.regular and step > self._step:
                self._intervals.append((now - self._step_s) / (step - self._step))
            self._step, self._step_s, self.regular = step, now, step >= _REGULAR_STEPS
        self.moved_s = now
        return True

    @property
    def patience_s(self) -> float:
        """For how long a pause is normal."""
        if not self.regular:
            return _EARLY * self.least_s
        usual = sorted(self._intervals)
        p99 = usual[min(len(usual) - 1, int(0.99 * len(usual)))] if usual else 0.0
        return max(self.least_s, _STEPS * p99, _GAPS * self._longest_s)


@dataclass(frozen=True)
class RankSeen:
    """The evidence of one rank, from two looks.

    Attributes:
        standing: where it is.
        busy: it, or a process below it, uses the processor or moves data.
        working: it may only be slow, since it computes with torch, writes files or moves data, or since processes or
            threads of its own compute.
    """

    standing: RankStanding
    busy: bool
    working: bool


def is_due(ranks: Sequence[RankSeen], culprits: Sequence[int], still_s: float, rhythm: Rhythm) -> bool:
    """Return True if a pause is long enough to be reported. A false alarm is worse than a late one.

    Args:
        ranks: of this machine.
        culprits: the ranks that others wait for.
        still_s: no rank has advanced for so long.
        rhythm: of the job.
    """
    standings = [each.standing for each in ranks]
    some_wait = any(each.waits_for_ranks for each in standings)
    if not some_wait and any(each.gone for each in standings):
        return False  # the work after the training
    if not rhythm.regular:
        return not any(each.busy for each in ranks)
    named = [each for each in ranks if each.standing.rank in culprits]
    slow = any(each.working for each in named) or (not some_wait and any(each.busy for each in ranks))
    return not slow or still_s >= _WORKING * rhythm.patience_s


class HangWatch:
    """Follows the ranks of this machine. `RingDrain` feeds it.

    Args:
        folder: of the rings, where ranks write their stacks.
        judge: judge(standings, ranks of the job) finds the culprits.
        show: shows a hang to people.
        say: shows a line to people.
        least_s: shortest pause that is suspected.
        stop: end the ranks after a hang was recorded.

    Attributes:
        events: hangs so far, and their ends.
        write: takes each event for the record; None before the job has one.
        ended: the hang for which the ranks were ended; None before.
        failed: the exception that ended this watch; empty while all is well.
    """

    def __init__(
        self,
        folder: Path,
        judge: Callable[[Sequence[RankStanding], int], HangSeen],
        show: Callable[[HangSeen], None],
        say: Callable[[str], None],
        *,
        least_s: float = LEAST_S,
        stop: bool = False,
    ) -> None:
        self.events: list[HangSeen | HangOver] = []
        self.write: Callable[[HangSeen | HangOver], None] | None = None
        self.ended: HangSeen | None = None
        self.failed = ""
        self._folder, self._judge, self._show, self._say = folder, judge, show, say
        self._least_s, self._stop_ranks = least_s, stop
        self._rhythm = Rhythm(least_s)
        self._ranks: dict[int, Progress] = {}
        self._world = 0
        self._silent = True
        self._looking = False
        self._shown: HangSeen | None = None
        self._next_look_s = 0.0
        self._before: tuple[float, dict[int, ProcessUse]] | None = None
        self._ending = threading.Event()

    @property
    def covers(self) -> bool:
        """All ranks of this machine have advanced: what they wait for is this watch's to report."""
        ranks = self._ranks
        return bool(ranks) and all(each.steps or each.entered or each.batches for each in ranks.values())

    def started(self, world: int) -> None:
        """An attempt of the job begins."""
        self._world, self._silent, self.ended = world, False, None
        self._rhythm, self._shown, self._ranks = Rhythm(self._least_s), None, {}

    def silence(self) -> None:
        """Ranks are being told to stop."""
        self._silent = True

    def stop(self) -> None:
        """Report nothing any more."""
        self._silent = True
        self._ending.set()

    def progress(self, ranks: dict[int, Progress], now: float | None = None) -> None:
        """Take how far each rank is, several times a second."""
        if not self.failed:
            self._guarded(self._progress, ranks, time.monotonic() if now is None else now)

    def _guarded(self, function: Callable[..., None], *args: Any) -> None:
        try:
            function(*args)
        except Exception as error:  # noqa: BLE001  a watch that fails ends neither the job nor its record
            self.failed, self._silent = f"{type(error).__name__}: {error}", True

    def _progress(self, ranks: dict[int, Progress], now: float) -> None:
        self._ranks, rhythm = ranks, self._rhythm
        before_s = rhythm.moved_s
        if rhythm.feed(now, ranks):
            self._before, self._next_look_s = None, 0.0
            if self._shown is not None:
                self._went_on(now - before_s)
            return
        still_s = now - rhythm.moved_s
        if self._silent or self._shown is not None or still_s < self._least_s / 2:
            return
        if self._before is None:
            self._before = now, {rank: use_of(each.pid) for rank, each in ranks.items()}
        done = all(each.ended for each in ranks.values())
        if not (done or self._looking) and still_s >= rhythm.patience_s and now >= self._next_look_s:
            self._looking = True
            # In a thread of its own: rings are read meanwhile.
            threading.Thread(target=self._guarded, args=(self._look,), name="paceline-hang", daemon=True).start()

    def _went_on(self, still_s: float) -> None:
        self._shown = None
        self._record(HangOver(still_s=still_s))
        if not self._silent and self._few_cards:
            self._say(f"paceline: the job went on after {still_s:.0f} s without progress")

    def _look(self) -> None:
        """Gather evidence, and report a hang if it is one."""
        try:
            moved_s, rhythm = self._rhythm.moved_s, self._rhythm
            seen = self._evidence()
            still_s = time.monotonic() - moved_s
            if self._silent or self._rhythm is not rhythm or rhythm.moved_s != moved_s:
                return
            hang = self._judge([each.standing for each in seen], self._world or len(seen))
            if not is_due(seen, hang.culprits, still_s, rhythm):
                self._next_look_s = time.monotonic() + self._least_s
                return
            step = max(each.steps for each in self._ranks.values())
            hang = msgspec.structs.replace(hang, step=step, still_s=still_s, patience_s=rhythm.patience_s)
            self._shown = hang
            self._record(hang)
            if self._few_cards:
                self._show(hang)
            if self._stop_ranks:
                self.ended = hang
                self._end_ranks()
        finally:
            self._looking = False

    @property
    def _few_cards(self) -> bool:
        return sum(isinstance(each, HangSeen) for each in self.events) <= _MOST_CARDS

    def _record(self, event: HangSeen | HangOver) -> None:
        self.events.append(event)
        if self.write is not None:
            self.write(event)

    def _evidence(self) -> list[RankSeen]:
        ranks = dict(self._ranks)
        began, before = self._before or (time.monotonic(), {})
        below = {rank: before[rank].pids if rank in before else (each.pid,) for rank, each in ranks.items()}
        paths = {pid: stack_path(self._folder, pid) for pids in below.values() for pid in pids}
        paths = {pid: path for pid, path in paths.items() if path.exists()}
        main = {each.pid: main_thread_s(each.pid) for each in ranks.values()}
        first_s, first = time.monotonic(), ask_stacks(paths)
        letters = {each.pid: state_of(each.pid) for each in ranks.values()}
        self._ending.wait(_BETWEEN_S)
        stacks = first | ask_stacks({pid: path for pid, path in paths.items() if pid in first})
        stacks |= spy_stacks([each.pid for each in ranks.values() if each.pid not in stacks and letters[each.pid]])
        now = time.monotonic()
        found = []
        for rank, each in sorted(ranks.items()):
            use, old = use_of(each.pid), before.get(rank, ProcessUse())
            cpu_share = (use.cpu_s - old.cpu_s) / (now - began)
            moves = (use.moved_bytes - old.moved_bytes) / (now - began) > _MOVED_BYTES_PER_S
            computes = main_thread_s(each.pid) - main[each.pid] > _BUSY_SHARE * (now - first_s)
            stack = stacks.get(each.pid, "")
            letter = state_of(each.pid)
            standing = standing_in(rank, stack, state=_state(each, letter, letters[each.pid], computes=computes))
            standing = _with_worker(standing, stack, {pid: stacks.get(pid, "") for pid in below[rank]}, each.pid)
            if standing.state == "runs" and standing.call not in ("", BACKWARD, FORWARD):
                standing = msgspec.structs.replace(standing, state="waits")  # NCCL spins
            if each.entered:
                standing = msgspec.structs.replace(standing, number=each.entered)
            busy = cpu_share > _BUSY_SHARE or moves
            # If its main thread is idle, loader workers or a compiler may work for it.
            found.append(RankSeen(standing, busy, busy and (moves or not computes or works(stack))))
        return found

    def _end_ranks(self) -> None:
        """SIGKILL, since a process that is stopped, or in C code, acts on no other signal."""
        for each in self._ranks.values():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                group = os.getpgid(each.pid)
                if group == os.getpgrp():  # a process of ours, such as a shell in between, leads no group of its own
                    os.kill(each.pid, signal.SIGKILL)
                else:
                    os.killpg(group, signal.SIGKILL)


def _state(progress: Progress, letter: str, before: str, *, computes: bool) -> str:
    if letter in ("", "Z", "X"):
        return "ended"
    if letter in ("T", "t"):
        return "stopped"
    if progress.ended:
        return "left"
    if letter == before == "D":
        return "blocked"
    return "runs" if computes else "waits"


def _with_worker(standing: RankStanding, stack: str, below: Mapping[int, str], pid: int) -> RankStanding:
    """A rank that waits for a loader worker is where that worker is."""
    if standing.call or "utils/data/dataloader.py" not in stack:
        return standing
    for worker, text in below.items():
        if worker != pid and (place := worker_place(text)) is not None:
            return msgspec.structs.replace(standing.at(place), worker=worker)
    return standing
