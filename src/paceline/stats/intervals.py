"""A value with its interval; the median with a distribution-free one, from order statistics."""

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
