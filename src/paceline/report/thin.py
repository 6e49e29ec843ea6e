"""A series of any length in bounded memory: totals exact, extremes kept.

Steps are gathered in windows of `stride` steps. When there are too many windows, neighbours are merged and the
stride doubles, so a series of n steps ends as at most `limit` windows. A window adds up what can be added (samples,
seconds, loss times count), which keeps every total exact, and remembers the whole row of its lowest, its highest and
its first non-finite loss, which keeps every extreme of the curve.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from paceline.records.schema import Step

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.float64]


class Row(NamedTuple):
    """What is kept of one step; see `Steps`."""

    step: float
    samples: float
    elapsed_s: float
    loss: float
    lr: float
    duration_s: float


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
    duration_s: Column
    """Evaluation and checkpoints left out; NaN when it is not known."""

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Steps:
        """Rows, each step once, in the order of steps."""
        by_step = {row.step: row for row in rows}
        ordered = [by_step[step] for step in sorted(by_step)]
        return cls(*np.array(ordered, dtype=np.float64).reshape(-1, len(Row._fields)).T)


@dataclass(frozen=True)
class Windows:
    """Windows of `stride` steps, each column of shape (m,); equal to `Steps` for a short run."""

    stride: int
    step: Column
    """The window's last step; likewise samples, elapsed_s and lr."""
    samples: Column
    elapsed_s: Column
    lr: Column
    loss_sum: Column
    """Of the steps whose loss was finite: loss times count."""
    count: Column
    """What their losses were divided by."""
    used: Column
    """Samples of the steps whose duration is known."""
    seconds: Column
    """Time of those steps, evaluation and checkpoints left out."""

    @property
    def loss(self) -> Column:
        """Mean of each window; NaN where no loss was finite."""
        return _ratio(self.loss_sum, self.count)

    @property
    def samples_per_s(self) -> Column:
        """Speed in each window; NaN where no duration is known."""
        return _ratio(self.used, self.seconds)

    def merged(self, most: int) -> Windows:
        """The same series with at most `most` windows: sums over sums, never means of means."""
        n = len(self.step)
        size = math.ceil(n / most)
        if size <= 1:
            return self
        starts = np.arange(0, n, size)
        last = np.minimum(starts + size, n) - 1
        positions = [column[last] for column in (self.step, self.samples, self.elapsed_s, self.lr)]
        sums = [np.add.reduceat(column, starts) for column in (self.loss_sum, self.count, self.used, self.seconds)]
        return Windows(self.stride * size, *positions, *sums)


def _ratio(sums: Column, over: Column) -> Column:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(over > 0, sums / over, np.nan)


@dataclass(slots=True)
class Window:
    """Steps that follow each other, added up; columns as in `Windows`, rows of its ends and extremes."""

    steps: int
    loss_sum: float
    count: float
    used: float
    seconds: float
    first: Row
    last: Row
    low: Row | None
    high: Row | None
    strange: Row | None

    def add(self, later: Window) -> None:
        """Take in the window that follows this one."""
        self.steps += later.steps
        self.loss_sum += later.loss_sum
        self.count += later.count
        self.used += later.used
        self.seconds += later.seconds
        self.last = later.last
        if later.low is not None and (self.low is None or later.low.loss < self.low.loss):
            self.low = later.low
        if later.high is not None and (self.high is None or later.high.loss > self.high.loss):
            self.high = later.high
        self.strange = self.strange or later.strange


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
        self._stride = 1

    def add(self, event: Step, samples: float, duration_s: float) -> None:
        """One more step.

        Args:
            event: as recorded.
            samples: what this step alone used.
            duration_s: what this step alone took, evaluation and checkpoints left out; NaN when it is not known.
        """
        row = Row(event.step, event.samples, event.elapsed_s, number(event.loss), event.lr, duration_s)
        finite = row if math.isfinite(row.loss) else None
        loss_sum, count = (row.loss * event.count, event.count) if finite else (0.0, 0.0)
        # A step whose duration is not known takes no part in the rate, neither its samples nor its time.
        used, seconds = (samples, duration_s) if math.isfinite(duration_s) else (0.0, 0.0)
        strange = None if finite else row
        window = Window(1, loss_sum, count, used, seconds, row, row, finite, finite, strange)
        if self._open is None:
            self._open = window
        else:
            self._open.add(window)
        if self._open.steps == self._stride:
            self._closed.append(self._open)
            self._open = None
            if len(self._closed) == self._limit:
                self._halve()

    def _halve(self) -> None:
        for index in range(0, self._limit, 2):
            self._closed[index].add(self._closed[index + 1])
        self._closed = self._closed[::2]
        self._stride *= 2

    def _windows(self) -> Sequence[Window]:
        """In order; the last may hold fewer than `stride` steps."""
        return self._closed if self._open is None else [*self._closed, self._open]

    def steps(self) -> Steps:
        """The extremes, and the first and the last step, extreme or not."""
        windows = self._windows()
        extremes = [row for window in windows for row in (window.low, window.high, window.strange) if row is not None]
        ends = [windows[0].first, windows[-1].last] if windows else []
        return Steps.of([*extremes, *ends])

    def windows(self) -> Windows:
        """All windows as columns."""
        windows = self._windows()
        rows = [
            (*(w.last.step, w.last.samples, w.last.elapsed_s, w.last.lr), *(w.loss_sum, w.count, w.used, w.seconds))
            for w in windows
        ]
        return Windows(self._stride, *np.array(rows, dtype=np.float64).reshape(-1, 8).T)


class Sample:
    """Numbers to take a median of: all of them up to `limit`, then every 2nd, every 4th and so on."""

    def __init__(self, limit: int = 65_536) -> None:
        self._limit = limit
        self._values = array("d")
        self._stride = 1
        self.seen = 0
        """How many were added."""

    def add(self, value: float) -> None:
        """One more."""
        if self.seen % self._stride == 0:
            if len(self._values) == self._limit:
                self._values = self._values[::2]
                self._stride *= 2
            if self.seen % self._stride == 0:
                self._values.append(value)
        self.seen += 1

    def values(self) -> Column:
        """Those that are held, in order."""
        return np.array(self._values, dtype=np.float64)


def number(value: float | None) -> float:
    """A float; NaN stands for what JSON can only write as null."""
    return math.nan if value is None else float(value)
