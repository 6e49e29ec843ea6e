"""Steps against samples: what a target costs at each batch size, and the critical batch.

To reach a target takes S(B) steps and E(B) = B S(B) samples at batch B, and the two trade off along a hyperbola,

    (S / S_min - 1) (E / E_min - 1) = 1,    so    S(B) = S_min + E_min / B = S_min (1 + B_crit / B)

with the **critical batch** B_crit = E_min / S_min, at which both are twice the least (McCandlish et al. 2018, arXiv
1812.06162, equation 2.11). Below it a larger batch saves steps almost for nothing, above it costs samples and saves
hardly any steps. The formula belongs to rates that were tuned, or scaled by a rule that holds, at each batch.

The fit is linear in 1 / B, by least squares of the errors relative to the fit (relative to what was measured, runs
that happened to be short would weigh more, and all would come out too small). Where all batches lie on one side of the
knee, one of the two numbers is only guessed at, so that is refused.

**Intervals are those of a linear fit**: Student's t for S(B), and Fieller's theorem for the critical batch, which is a
ratio. With n runs the residuals have n - 2 degrees of freedom, and with few runs that decides: of refits to resampled
residuals, the middle 90 % hold the critical batch in three of five cases with three runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import stdtrit

from paceline.records.errors import PacelineError
from paceline.stats.intervals import Interval, ratio_ends

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LEAST_BATCHES = 3
_REWEIGHTINGS = 6


@dataclass(frozen=True)
class Hyperbola:
    """The fit.

    Attributes:
        least_steps: S_min.
        least_samples: E_min.
        variances: of S_min, of both together, of E_min: what the residuals say of them.
        degrees: of freedom of the residuals.
        worst: the largest relative error of the fit at a batch size (mean over its runs).
        held_out: relative error of the prediction for the largest batch from a fit without it; None with three batches.
        confidence: of intervals.
    """

    least_steps: float
    least_samples: float
    variances: tuple[float, float, float]
    degrees: int
    worst: float
    held_out: float | None
    confidence: float

    @cached_property
    def critical(self) -> Interval:
        """B_crit with its interval; the upper end is infinite where S_min cannot be told from 0."""
        value = self.least_samples / self.least_steps
        covariance = self.variances[2], self.variances[1], self.variances[0]
        low, high = ratio_ends(self.least_samples, self.least_steps, covariance, self._quantile)
        return Interval(value, min(low, value), max(high, value))

    def steps(self, batch: float) -> float:
        """S(B)."""
        return self.least_steps + self.least_samples / batch

    def samples(self, batch: float) -> float:
        """E(B)."""
        return batch * self.steps(batch)

    def efficiency(self, batch: float, base: float) -> float:
        """E(base) / E(batch): how much further a sample goes at `base`."""
        return self.samples(base) / self.samples(batch)

    def efficiency_interval(self, batch: float, base: float) -> Interval:
        """E(base) / E(batch) with its interval, by Fieller's theorem: both are sums of S_min and E_min."""
        value = self.efficiency(batch, base)
        if batch == base:
            return Interval(value, value, value)
        of_steps, of_both, of_samples = self.variances

        def both(one: float, other: float) -> float:
            return one * other * of_steps + (one + other) * of_both + of_samples

        covariance = both(base, base), both(base, batch), both(batch, batch)
        low, high = ratio_ends(self.samples(base), self.samples(batch), covariance, self._quantile)
        return Interval(value, min(low, value), max(high, value))

    def steps_interval(self, batch: float) -> Interval:
        """S(B) with its interval."""
        return self.sum_of(1.0, 1.0 / batch)

    def sum_of(self, steps: float, samples: float) -> Interval:
        """So many times S_min and so many times E_min, 0 and more of each, with the interval of the sum."""
        value = steps * self.least_steps + samples * self.least_samples
        of_steps, of_both, of_samples = self.variances
        variance = steps * steps * of_steps + 2 * steps * samples * of_both + samples * samples * of_samples
        reach = self._quantile * math.sqrt(max(0.0, variance))
        return Interval(value, max(0.0, value - reach), value + reach)

    @property
    def _quantile(self) -> float:
        return float(stdtrit(self.degrees, 0.5 + self.confidence / 2))


def fit(batches: Sequence[float], steps: Sequence[float], *, confidence: float = 0.9) -> Hyperbola:
    """Fit runs to a target.

    Args:
        batches: (runs,) batch size of each; a size may stand there several times, with other seeds.
        steps: (runs,) steps that it took to the target, above 0. Runs that did not reach it cannot be used.
        confidence: of intervals.

    Raises:
        PacelineError: fewer than three batch sizes, or all on one side of the knee.
    """
    sizes, counts = np.asarray(batches, dtype=np.float64), np.asarray(steps, dtype=np.float64)
    different = np.unique(sizes)
    if len(different) < LEAST_BATCHES:
        raise PacelineError(
            f"{len(different)} batch sizes are too few for a critical batch",
            why="two numbers are fitted, and a third size has to show whether the formula holds",
            hint=f"runs to the target at {LEAST_BATCHES} batch sizes or more, over a wide range",
        )
    least_steps, least_samples = _least_squares(sizes, counts)
    _require_knee(least_samples / least_steps if least_steps > 0 else math.inf, different)
    expected = least_steps + least_samples / sizes
    errors = [abs(float(np.mean(counts[sizes == size] / expected[sizes == size])) - 1) for size in different]
    return Hyperbola(
        least_steps=least_steps,
        least_samples=least_samples,
        variances=_variances(sizes, counts, expected),
        degrees=len(counts) - 2,
        worst=max(errors),
        held_out=_held_out(sizes, counts) if len(different) > LEAST_BATCHES else None,
        confidence=confidence,
    )


def _require_knee(critical: float, different: Floats) -> None:
    smallest, largest = float(different[0]), float(different[-1])
    if critical < smallest:
        raise PacelineError(
            f"all batches lie above the knee: from {smallest:,.0f} on, a larger batch saved hardly any steps",
            why="the least number of samples is then only guessed at, and so is the critical batch",
            hint=f"add runs at batches below {smallest:,.0f}",
        )
    if critical > largest:
        raise PacelineError(
            f"all batches lie below the knee: up to {largest:,.0f}, steps fell as the batch grew",
            why="the least number of steps is then only guessed at, and so is the critical batch",
            hint=f"add runs at batches above {largest:,.0f}",
        )


def _least_squares(sizes: Floats, steps: Floats) -> tuple[float, float]:
    """S_min and E_min, 0 or more, of least squared errors relative to the fit.

    Args:
        sizes, steps: (runs,).
    """
    expected = steps
    for _ in range(_REWEIGHTINGS):
        least_steps, least_samples = _weighted(sizes, steps, expected)
        expected = least_steps + least_samples / sizes
    return least_steps, least_samples


def _weighted(sizes: Floats, steps: Floats, expected: Floats) -> tuple[float, float]:
    """The same for given denominators of the relative errors, (runs,)."""
    a11, a12, a22 = _normal(sizes, expected)
    b1, b2 = float((steps / expected**2).sum()), float((steps / (sizes * expected**2)).sum())
    determinant = a11 * a22 - a12 * a12
    least_steps, least_samples = (a22 * b1 - a12 * b2) / determinant, (a11 * b2 - a12 * b1) / determinant
    # With one of two coefficients below 0, the best with none below 0 has it at 0.
    if least_steps < 0:
        return 0.0, b2 / a22
    return (b1 / a11, 0.0) if least_samples < 0 else (least_steps, least_samples)


def _normal(sizes: Floats, expected: Floats) -> tuple[float, float, float]:
    """Entries of the matrix of the normal equations: of S_min, of both, of E_min."""
    one, two = 1.0 / expected, 1.0 / (sizes * expected)
    return float((one * one).sum()), float((one * two).sum()), float((two * two).sum())


def _variances(sizes: Floats, counts: Floats, expected: Floats) -> tuple[float, float, float]:
    """Of S_min, of both together, and of E_min, from the relative residuals."""
    noise = float(((counts / expected - 1) ** 2).sum()) / (len(counts) - 2)
    a11, a12, a22 = _normal(sizes, expected)
    scale = noise / (a11 * a22 - a12 * a12)
    return scale * a22, -scale * a12, scale * a11


def _held_out(sizes: Floats, counts: Floats) -> float:
    largest = sizes.max()
    rest = sizes < largest
    least_steps, least_samples = _least_squares(sizes[rest], counts[rest])
    measured = float(np.mean(counts[~rest]))
    return float((least_steps + least_samples / largest) / measured - 1)
