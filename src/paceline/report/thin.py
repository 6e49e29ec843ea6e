"""A series of any length in bounded memory: totals exact, extremes kept.

Steps are gathered in windows of `stride` steps. When there are too many windows, neighbours are merged and the
stride doubles, so a series of n steps ends as at most `limit` windows. A window adds up what can be added
(steps, samples, seconds of each phase, loss times count), which keeps every total exact, and remembers the whole
row of its lowest, its highest and its first non-finite loss, which keeps every extreme of the curve.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paceline.records.schema import Step

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Column = NDArray[np.float64]

Row = tuple[float, ...]
"""One step: step, samples, elapsed_s, loss, lr, data_s, forward_s, backward_s, update_s, duration_s."""

ROW = ("step", "samples", "elapsed_s", "loss", "lr", "data_s", "forward_s", "backward_s", "update_s", "duration_s")
_STEP, _SAMPLES, _ELAPSED, _LOSS, _DATA, _DURATION = 0, 1, 2, 3, 5, 9
PHASES = ("data_s", "forward_s", "backward_s", "update_s")


@dataclass(frozen=True)
class Steps:
    """Steps that were kept, each column of shape (n,): all of a short run, the extremes of a long one."""

    step: Column
    samples: Column
    """Used by all ranks up to and with the step."""
    elapsed_s: Column
    loss: Column
    """NaN where it was not finite."""
    lr: Column
    data_s: Column
    forward_s: Column
    backward_s: Column
    update_s: Column
    duration_s: Column


class Window:
    """Steps that follow each other, added up."""

    __slots__ = (
        "count",
        "first",
        "high",
        "last",
        "loss_sum",
        "low",
        "phases",
        "samples",
        "seconds",
        "steps",
        "strange",
    )

    def __init__(self, row: Row, samples: float, count: float) -> None:
        loss = row[_LOSS]
        finite = math.isfinite(loss)
        self.steps = 1
        # A step whose duration is not known takes no part in the rate, neither its samples nor its time.
        timed = math.isfinite(row[_DURATION])
        self.samples = samples if timed else 0.0
        self.seconds = row[_DURATION] if timed else 0.0
        self.phases = list(row[_DATA : _DATA + 4])
        self.loss_sum = loss * count if finite else 0.0
        self.count = count if finite else 0.0
        self.first = self.last = row
        self.low = self.high = row if finite else None
        self.strange = None if finite else row

    def add(self, later: Window) -> None:
        """Take in the window that follows this one."""
        self.steps += later.steps
        self.samples += later.samples
        self.seconds += later.seconds
        self.phases = [a + b for a, b in zip(self.phases, later.phases, strict=True)]
        self.loss_sum += later.loss_sum
        self.count += later.count
        self.last = later.last
        if later.low is not None and (self.low is None or later.low[_LOSS] < self.low[_LOSS]):
            self.low = later.low
        if later.high is not None and (self.high is None or later.high[_LOSS] > self.high[_LOSS]):
            self.high = later.high
        if self.strange is None:
            self.strange = later.strange

    def rows(self) -> list[Row]:
        """The rows that this window still knows, in order, each once."""
        kept = {row[_STEP]: row for row in (self.low, self.high, self.strange) if row is not None}
        return [kept[step] for step in sorted(kept)]


class Thinner:
    """Takes the steps of a run one by one; holds at most `limit` windows.

    Args:
        limit: windows held at most, even and at least 2. Between limit / 2 and limit are left of a long series.
    """

    def __init__(self, limit: int = 2000) -> None:
        if limit < 2 or limit % 2:
            raise ValueError(f"limit must be even and at least 2, not {limit}")
        self._limit = limit
        self._closed: list[Window] = []
        self._open: Window | None = None
        self.stride = 1

    def add(self, event: Step, samples: float, duration_s: float) -> None:
        """One more step.

        Args:
            event: as recorded.
            samples: what this step alone used.
            duration_s: what this step alone took, evaluation and checkpoints left out; NaN when it is not known.
        """
        row = (
            event.step,
            event.samples,
            event.elapsed_s,
            number(event.loss),
            event.lr,
            event.data_s,
            event.forward_s,
            event.backward_s,
            event.update_s,
            duration_s,
        )
        window = Window(row, samples, event.count)
        if self._open is None:
            self._open = window
        else:
            self._open.add(window)
        if self._open.steps == self.stride:
            self._closed.append(self._open)
            self._open = None
            if len(self._closed) == self._limit:
                self._halve()

    def windows(self) -> Iterator[Window]:
        """All windows in order; the last may hold fewer than `stride` steps."""
        yield from self._closed
        if self._open is not None:
            yield self._open

    def _halve(self) -> None:
        for index in range(0, self._limit, 2):
            self._closed[index].add(self._closed[index + 1])
        self._closed = self._closed[::2]
        self.stride *= 2


class Sample:
    """Numbers to take a median of: all of them up to `limit`, then every 2nd, every 4th and so on."""

    def __init__(self, limit: int = 65_536) -> None:
        self._limit = limit
        self._values = array("d")
        self._stride = 1
        self._seen = 0

    def add(self, value: float) -> None:
        """One more."""
        if self._seen % self._stride == 0:
            if len(self._values) == self._limit:
                self._values = self._values[::2]
                self._stride *= 2
            if self._seen % self._stride == 0:
                self._values.append(value)
        self._seen += 1

    @property
    def seen(self) -> int:
        """How many were added."""
        return self._seen

    def values(self) -> array[float]:
        """Those that are held, in order."""
        return self._values


def number(value: float | None) -> float:
    """A float; NaN stands for what JSON can only write as null."""
    return math.nan if value is None else float(value)
