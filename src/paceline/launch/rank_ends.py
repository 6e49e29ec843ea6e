"""When each process of an attempt ends, in order, to about a millisecond.

torch's agent asks every 0.1 s and takes the first exit code other than 0 for the first failure. A pidfd becomes
readable when its process ends, so the order is known also of ends within that time, and of ends with code 0.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Mapping

from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from paceline.records.launched import Attempt, RankExit

Ends = Mapping[int, tuple[float, int | None]]
"""When ranks have ended (Unix time) and with which exit code, by rank. None: the agent collected the process first."""
_WAKE_MS = 200
_LEFTOVER_S = 2.0


class RunningRanks:
    """The ranks of an attempt. A thread watches for their ends until all have ended or `exits` is called.

    Args:
        started_unix_s: when they were started.
        ranks: by local rank.
        pids: by local rank.

    Attributes:
        stop_unix_s: when the launcher began to stop them; None before.
    """

    def __init__(self, started_unix_s: float, ranks: Mapping[int, int], pids: Mapping[int, int]) -> None:
        self.started_unix_s = started_unix_s
        self.stop_unix_s: float | None = None
        self._ranks, self._pids = ranks, pids
        self._ends: dict[int, tuple[float, int | None]] = {}  # grows in the order of ends
        self._open: dict[int, int] = {}
        for local_rank, pid in pids.items():
            with contextlib.suppress(OSError, AttributeError):  # no pidfd here: no order is known
                self._open[os.pidfd_open(pid)] = ranks[local_rank]
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="paceline-ends", daemon=True)
        self._thread.start()

    def ends(self) -> Ends:
        """Return the ends that are known so far."""
        return dict(self._ends)

    def exits(self, codes: Mapping[int, int | None]) -> list[RankExit]:
        """How each rank ended, once ends that are just being seen were noted.

        Args:
            codes: the agent's, by local rank.
        """
        self._stopped.set()
        self._thread.join()
        for handle in self._open:
            os.close(handle)
        return [self._exit(local_rank, pid, codes.get(local_rank)) for local_rank, pid in self._pids.items()]

    def _exit(self, local_rank: int, pid: int, code: int | None) -> RankExit:
        at, seen_code = self._ends.get(self._ranks[local_rank], (None, None))
        return RankExit(
            rank=self._ranks[local_rank],
            local_rank=local_rank,
            pid=pid,
            exit_code=seen_code if code is None else code,
            after_s=None if at is None else max(0.0, at - self.started_unix_s),
            stopped=at is not None and self.stop_unix_s is not None and at >= self.stop_unix_s,
        )

    def _follow(self) -> None:
        poll = select.poll()
        for handle in self._open:
            poll.register(handle, select.POLLIN)
        waiting = len(self._open)
        while waiting:
            last = self._stopped.is_set()
            ready = poll.poll(0 if last else _WAKE_MS)
            now = time.time()
            for handle, _ in ready:
                self._ends[self._open[handle]] = (now, _exit_code(handle))
                poll.unregister(handle)
                waiting -= 1
            if last:
                return

    def end_leftovers(self) -> None:
        """End what workers that were interrupted left in their process groups, such as processes of mp.spawn."""
        deadline = time.monotonic() + _LEFTOVER_S
        left = set(self._pids.values())
        while left and time.monotonic() < deadline:
            left = {pid for pid in left if _group_lives(pid)}
            time.sleep(0.05 if left else 0)
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)


def attempt_of(failures: Mapping[int, ProcessFailure]) -> Attempt:
    """A failed attempt, as far as torch's agent tells it.

    Args:
        failures: by rank.

    Returns:
        The ranks that failed; their times count from 1970. It is not known whether the launcher stopped them.
    """
    ranks = [
        RankExit(
            rank=rank,
            local_rank=each.local_rank,
            pid=each.pid,
            exit_code=each.exitcode,
            after_s=float(each.timestamp),
            stopped=None,
        )
        for rank, each in sorted(failures.items())
    ]
    return Attempt(
        attempt=1, started_unix_s=0.0, duration_s=0.0, world=len(ranks), outcome="failed", ranks=ranks, logs=None
    )


def _exit_code(handle: int) -> int | None:
    """Look at the exit status, and leave it for the agent to collect."""
    try:
        seen = os.waitid(os.P_PIDFD, handle, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except OSError:
        return None
    if seen is None:
        return None
    return seen.si_status if seen.si_code == os.CLD_EXITED else -seen.si_status


def _group_lives(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
