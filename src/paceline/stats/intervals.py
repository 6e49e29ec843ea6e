"""A value with its interval: of a ratio by Fieller's theorem, of a median from order statistics, distribution-free."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Interval:
    """A value and the interval around it; either end may be infinite."""

    value: float
    low: float
    high: float


def ratio_ends(
    top: float, bottom: float, covariance: tuple[float, float, float], quantile: float
) -> tuple[float, float]:
    """Interval for the ratio of two normal estimates of numbers that are 0 and more (Fieller 1954): all ratios r for
    which top - r bottom lies within `quantile` of its standard errors of 0.

    Args:
        top, bottom: the estimates.
        covariance: variance of top, covariance of both, variance of bottom.
        quantile: of Student's t, or of the normal distribution.

    Returns:
        (low, high), cut off at 0; `high` is infinite where `bottom` cannot be told from 0.
    """
    var_top, both, var_bottom = (quantile**2 * each for each in covariance)
    # r is inside where c2 r^2 - 2 c1 r + c0 <= 0
    c2, c1, c0 = bottom**2 - var_bottom, top * bottom - both, top**2 - var_top
    inside = c1 * c1 - c2 * c0
    if c2 <= 0:  # bottom may be 0: the ratio has no upper end
        if inside <= 0 or c2 == 0:
            return 0.0, math.inf
        return max(0.0, (c1 - math.sqrt(inside)) / c2), math.inf
    if bottom < 0:
        return 0.0, math.inf
    root = math.sqrt(max(0.0, inside))
    return max(0.0, (c1 - root) / c2), max(0.0, (c1 + root) / c2)


def median_interval(values: NDArray[np.float64], confidence: float = 0.95) -> tuple[float, float, float] | None:
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
    ordered = np.sort(values)
    rank = _rank(len(ordered), confidence)
    if rank < 1:
        return None
    return float(np.median(ordered)), float(ordered[rank - 1]), float(ordered[len(ordered) - rank])


def _rank(n: int, confidence: float) -> int:
    if n > 1000:  # the normal approximation is exact to a rank or so here, and big binomials are slow
        from statistics import NormalDist

        z = NormalDist().inv_cdf(0.5 + confidence / 2)
        return math.floor(n / 2 - z * math.sqrt(n) / 2)
    rank, below = 0, 1
    budget = (1 - confidence) / 2 * 2**n
    term = 1
    while below <= budget:
        rank += 1
        term = term * (n - rank + 1) // rank
        below += term
    return rank
