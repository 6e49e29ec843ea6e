"""A few numbers of people, counted into equal parts; of numbers that span much, equal on a logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

BINS = 12
_LOG_FROM, _MARGIN = 20.0, 0.05


@dataclass(frozen=True)
class Histogram:
    """Counts.

    Attributes:
        counts: one a part.
        low: where the first part begins.
        high: where the last ends.
        log: parts are equal factors.
    """

    counts: list[int]
    low: float
    high: float
    log: bool

    def place(self, value: float) -> float:
        """Where a value stands on the axis, 0 to 1."""
        if self.log:
            return (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return (value - self.low) / (self.high - self.low)


def histogram(values: Sequence[float], outcome: float | None) -> Histogram | None:
    """The counts on an axis that has room for what came out as well; None without values.

    Args:
        values: finite.
        outcome: what was measured.
    """
    if not values:
        return None
    every = [*values, outcome] if outcome is not None else list(values)
    low, high = min(every), max(every)
    log = low > 0 and high / low > _LOG_FROM
    if low == high:
        margin = abs(low) / 2 or 0.5
        low, high = low - margin, high + margin
    elif log:
        margin = min(2.0, math.exp((math.log(high) - math.log(low)) * _MARGIN))
        low, high = low / margin or low, high * margin  # never 0, which has no logarithm
    else:
        margin = _MARGIN * (high - low)
        low, high = low - margin, high + margin
    if not (math.isfinite(low) and math.isfinite(high) and math.isfinite(high - low)):
        return None
    frame = Histogram([0] * BINS, low, high, log)
    for value in values:
        frame.counts[min(BINS - 1, max(0, int(frame.place(value) * BINS)))] += 1
    return frame
