"""When each process of an attempt ends, in order, to about a millisecond.

torch's agent asks every 0.1 s and takes the first exit code other than 0 for the first failure. A pidfd becomes
readable when its process ends, so the order is known also of ends within that time, and of ends with code 0.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

_WAKE_MS = 200


@dataclass(frozen=True)
class SeenEnd:
    """One end.

    Attributes:
        at_unix_s: when it was seen.
        exit_code: as subprocess gives it; None when the agent collected the process first.
    """

    at_unix_s: float
    exit_code: int | None


class EndWatcher:
    """Follows processes until all have ended or it is stopped.

    Args:
        pids: by local rank.

    Attributes:
        ends: by local rank, of those that have ended; grows in the order of ends.
    """

    def __init__(self, pids: Mapping[int, int]) -> None:
        self.ends: dict[int, SeenEnd] = {}
        self._open: dict[int, int] = {}
        for local_rank, pid in pids.items():
            with contextlib.suppress(OSError, AttributeError):  # no pidfd here: no order is known
                self._open[os.pidfd_open(pid)] = local_rank
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="paceline-ends", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Wait a moment for ends that are just being seen, and close."""
        self._stopped.set()
        self._thread.join()
        for handle in self._open:
            os.close(handle)
        self._open.clear()

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
                self.ends[self._open[handle]] = SeenEnd(now, _exit_code(handle))
                poll.unregister(handle)
                waiting -= 1
            if last:
                return


def _exit_code(handle: int) -> int | None:
    """Look at the exit status, and leave it for the agent to collect."""
    try:
        seen = os.waitid(os.P_PIDFD, handle, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except OSError:
        return None
    if seen is None:
        return None
    return seen.si_status if seen.si_code == os.CLD_EXITED else -seen.si_status
