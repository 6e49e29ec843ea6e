"""Values with intervals: of linear combinations and ratios of estimates, and of a median, distribution-free."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from paceline.records.plan_results import Estimate, estimate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A value and the interval around it; either end may be infinite."""

    value: float
    low: float
    high: float

    @classmethod
    def around(cls, value: float, *ends: float) -> Interval:
        """From the least to the greatest of `value` and `ends`."""
        return cls(value, min((value, *ends)), max((value, *ends)))

    def map(self, of: Callable[[float], float]) -> Interval:
        """What a monotone function makes of it."""
        return Interval.around(of(self.value), of(self.low), of(self.high))

    @property
    def estimate(self) -> Estimate:
        """For a record, where infinite is null."""
        return estimate(self.value, self.low, self.high)


def quantile(confidence: float, degrees: float = math.inf) -> float:
    """How many standard errors an interval reaches to each side: Student's t, by default the normal distribution's.

    Args:
        confidence: of the interval, between 0 and 1.
        degrees: of freedom, above 0.
    """
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.5 + confidence / 2))


@dataclass(frozen=True)
class Joint:
    """Estimates of numbers that are 0 and more, with errors that are jointly normal.

    Attributes:
        values: (n,).
        covariance: (n, n).
        reach: of intervals, in standard errors; see `quantile`.
    """

    values: Floats
    covariance: Floats
    reach: float

    def sum_of(self, weights: Sequence[float]) -> Interval:
        """The sum of the numbers times `weights`, (n,) of 0 and more."""
        by = np.asarray(weights)
        value, variance = float(by @ self.values), float(by @ self.covariance @ by)
        error = self.reach * math.sqrt(max(0.0, variance))
        return Interval(value, max(0.0, value - error), value + error)

    def ratio(self, top: Sequence[float], bottom: Sequence[float]) -> Interval:
        """The ratio of two such sums (Fieller 1954): all r for which top - r bottom lies within `reach` standard errors
        of 0, cut off at 0. The upper end is infinite where `bottom` cannot be told from 0."""
        by = np.array([top, bottom])
        over, under = (by @ self.values).tolist()
        (var_over, both), (_, var_under) = (self.reach**2 * by @ self.covariance @ by.T).tolist()
        value = over / under if under > 0 else math.inf
        # r is inside where c2 r^2 - 2 c1 r + c0 <= 0
        c2, c1, c0 = under**2 - var_under, over * under - both, over**2 - var_over
        inside = c1 * c1 - c2 * c0
        if c2 <= 0:  # bottom may be 0: the ratio has no upper end
            low = (c1 - math.sqrt(inside)) / c2 if inside > 0 and c2 < 0 else 0.0
            return Interval(value, max(0.0, low), math.inf)
        if under < 0:
            return Interval(value, 0.0, math.inf)
        root = math.sqrt(max(0.0, inside))
        return Interval(value, max(0.0, (c1 - root) / c2), max(0.0, (c1 + root) / c2))


def median_interval(values: Floats, confidence: float = 0.95) -> tuple[float, float, float] | None:
    """The sample median, and an interval that holds the true median with at least the given confidence.

    The interval runs from the k-th smallest to the k-th largest value, with k the greatest rank for which
    2 P(Binomial(n, 1/2) < k) <= 1 - confidence. It assumes independent values; steps of one run follow each other
    and are not quite that, so it is the spread within this run and says nothing about other runs.

    Args:
        values: shape (n,), finite.
        confidence: between 0 and 1.

    Returns:
        (median, low, high), or None when n is too small for such an interval (below 6 at 0.95).

    Source: David and Nagaraja, Order Statistics, 3rd edition, section 7.1.
    """
    from scipy.special import bdtr

    ordered, n = np.sort(values), len(values)
    rank = int((bdtr(np.arange(n // 2 + 1), n, 0.5) <= (1 - confidence) / 2).sum())
    if rank < 1:
        return None
    return float(np.median(ordered)), float(ordered[rank - 1]), float(ordered[n - rank])
