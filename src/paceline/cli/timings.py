"""Where the time of a training command went: `--timings`."""

from __future__ import annotations

import os
import time
from pathlib import Path

from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir
from paceline.records.schema import End, Start
from paceline.records.wrap import text_card

READ, LOADED, TRIED, ENDED, SHOWN = "command read", "torch loaded", "task tried", "workers ended", "page and numbers"


class Timings:
    """Moments of a command, each named by what was done by then."""

    def __init__(self) -> None:
        self._began = time.time() - _age_s()
        self._moments: dict[str, float] = {}

    def mark(self, done: str) -> None:
        """Something is done."""
        self._moments[done] = time.time()

    def card(self, run: RunDir) -> str:
        """Start, training and end, with their shares.

        Args:
            run: of the training, which has ended.
        """
        started, steps_s = _of_ranks(run)
        at = {"": self._began, **self._moments}
        ready = at.get(TRIED, self._began) if started is None else started
        parts = [
            (READ, at[READ] - at[""]),
            (LOADED, at[LOADED] - at[READ]),
            (TRIED, at[TRIED] - at[LOADED]),
            ("workers ready", ready - at[TRIED]),
        ]
        whole = at[SHOWN] - at[""]
        rows = [
            ("start", _row(ready - at[""], whole, parts)),
            ("training", _row(at[ENDED] - ready, whole, [("steps, evaluation and checkpoints", steps_s)])),
            ("end", _row(at[SHOWN] - at[ENDED], whole, [(SHOWN, at[SHOWN] - at[ENDED])])),
        ]
        return text_card(f"{whole:.2f} s", rows, label=10)


def _age_s() -> float:
    """How long this process has been running, to a hundredth of a second; 0 where the system does not say."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError):
        return 0.0


def _row(seconds: float, whole: float, parts: list[tuple[str, float]]) -> str:
    return f"{seconds:.2f} s, {seconds / whole:.0%}: " + ", ".join(f"{what} {spent:.2f}" for what, spent in parts)


def _of_ranks(run: RunDir) -> tuple[float | None, float]:
    """When the ranks were ready to train, and how long this session then took by its own clock."""
    started, before, trained = None, 0.0, 0.0
    for event in EventStream(run.events()):
        if isinstance(event, Start):
            started, before = event.time_unix_s, event.elapsed_s
        elif isinstance(event, End):
            trained = event.elapsed_s - before
    return started, trained
