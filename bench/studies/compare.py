"""Numbers with what is known of their error: means, medians with censored values, and a difference of two means."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats as scipy_stats

from bench.harness import Interval

KEPT_ABOVE = -0.3
"""Points of accuracy: a difference whose whole interval lies above this is called kept (issue 3, study 2)."""


@dataclass(frozen=True)
class Difference:
    """Mean of one side less mean of the other.

    Attributes:
        interval: the difference with its 95 % interval by Welch's t.
        degrees: of freedom, by Welch and Satterthwaite.
        bootstrap: the same difference with a percentile interval that assumes no normal distribution.
        normality: p of Shapiro and Wilk's test of either side; None where all values are equal or fewer than 3.
    """

    interval: Interval
    degrees: float
    bootstrap: Interval
    normality: tuple[float | None, float | None]


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """The mean with Student's t interval; None below 3 values, of which no interval is worth printing."""
    if len(values) < 3:
        return None
    mean, error = statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values))
    reach = float(scipy_stats.t.ppf(0.5 + confidence / 2, len(values) - 1)) * error
    return Interval(mean, mean - reach, mean + reach)


def difference_of_means(
    first: Sequence[float], second: Sequence[float], *, resamples: int = 10_000, seed: int = 0
) -> Difference:
    """mean(first) - mean(second), unequal variances allowed (Welch 1947, Biometrika 34).

    Args:
        first, second: (n,) and (m,), independent runs, in any unit; the result has the same.

    Raises:
        ValueError: fewer than 3 values on a side, or a value that is not finite.
    """
    sides = [np.asarray(side, dtype=np.float64) for side in (first, second)]
    if min(len(side) for side in sides) < 3 or not all(np.isfinite(side).all() for side in sides):
        raise ValueError("a difference with an interval needs at least 3 finite values on each side")
    parts = [float(side.var(ddof=1)) / len(side) for side in sides]
    value = float(sides[0].mean() - sides[1].mean())
    total = sum(parts)
    if total == 0:
        degrees, reach = float(min(len(side) for side in sides) - 1), 0.0
    else:
        degrees = total**2 / sum(part**2 / (len(side) - 1) for part, side in zip(parts, sides, strict=True))
        reach = float(scipy_stats.t.ppf(0.975, degrees)) * math.sqrt(total)
    random = np.random.default_rng(seed)
    drawn = [random.choice(side, size=(resamples, len(side))).mean(axis=1) for side in sides]
    low, high = np.quantile(drawn[0] - drawn[1], [0.025, 0.975])
    return Difference(
        interval=Interval(value, value - reach, value + reach),
        degrees=degrees,
        bootstrap=Interval(value, float(low), float(high)),
        normality=(_shapiro(sides[0]), _shapiro(sides[1])),
    )


def _shapiro(values: np.ndarray) -> float | None:
    if len(values) < 3 or np.ptp(values) == 0:
        return None
    return float(scipy_stats.shapiro(values).pvalue)


def verdict(points: Interval) -> str:
    """`kept`, `lost` or `not shown` from a difference in points of accuracy.

    Kept only where the whole interval lies above `KEPT_ABOVE`, lost only where it lies below; anything else is open.
    """
    if points.low > KEPT_ABOVE:
        return "kept"
    return "lost" if points.high < KEPT_ABOVE else "not shown"


@dataclass(frozen=True)
class Arrival:
    """When runs reached a target, with runs that did not.

    Attributes:
        median: None when the middle run did not arrive: it was cut off (then the median is above `beyond`) or diverged.
        low, high: least and greatest of those that arrived; None when none did.
        arrived, runs: how many.
        beyond: the least at which a run was cut off; None when none was.
        diverged: how many can never arrive; all that neither arrived nor diverged were cut off.
    """

    median: float | None
    low: float | None
    high: float | None
    arrived: int
    runs: int
    beyond: float | None
    diverged: int

    @property
    def cut_off(self) -> int:
        """How many were given up, and might have arrived later."""
        return self.runs - self.arrived - self.diverged


def arrivals(values: Sequence[float | None], given_up: Sequence[float | None]) -> Arrival:
    """Summary of times (or steps, samples) to a target; None: not reached, later than all others.

    Args:
        values: (runs,) when each arrived.
        given_up: (runs,) where those that did not were given up; None for a run that can never arrive (diverged).

    Raises:
        ValueError: no runs, or lists of different lengths.
    """
    if not values or len(values) != len(given_up):
        raise ValueError("needs as many places where runs were given up as runs, and at least one")
    known = sorted(value for value in values if value is not None)
    ordered = [math.inf if value is None else value for value in values]
    middle = statistics.median_high(ordered)
    beyond = [stop for value, stop in zip(values, given_up, strict=True) if value is None and stop is not None]
    return Arrival(
        median=None if math.isinf(middle) else middle,
        low=known[0] if known else None,
        high=known[-1] if known else None,
        arrived=len(known),
        runs=len(values),
        beyond=min(beyond) if beyond else None,
        diverged=len(values) - len(known) - len(beyond),
    )
