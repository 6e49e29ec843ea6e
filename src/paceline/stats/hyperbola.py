"""Steps against samples: what a target costs at each batch size, and the critical batch.

To reach a target takes S(B) steps and E(B) = B S(B) samples at batch B, and the two trade off along a hyperbola,

    (S / S_min - 1) (E / E_min - 1) = 1,    so    S(B) = S_min + E_min / B = S_min (1 + B_crit / B)

with the **critical batch** B_crit = E_min / S_min, at which both are twice the least (McCandlish et al. 2018, arXiv
1812.06162, equation 2.11). Below it a larger batch saves steps almost for nothing, above it costs samples and saves
hardly any steps. The formula belongs to rates that were tuned, or scaled by a rule that holds, at each batch.

The fit is linear in 1 / B, by least squares of the errors relative to the fit (relative to what was measured, runs
that happened to be short would weigh more, and all would come out too small). Where all batches lie on one side of the
knee, one of the two numbers is only guessed at, so that is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from paceline.records.errors import PacelineError
from paceline.stats.intervals import Interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LEAST_BATCHES = 3
_RESAMPLES = 2000
_REWEIGHTINGS = 6


@dataclass(frozen=True)
class Hyperbola:
    """The fit.

    Attributes:
        least_steps: S_min.
        least_samples: E_min.
        critical: B_crit with its bootstrap interval.
        worst: the largest relative error of the fit at a batch size (mean over its runs).
        held_out: relative error of the prediction for the largest batch from a fit without it; None with three batches.
        confidence: of the interval.
    """

    least_steps: float
    least_samples: float
    critical: Interval
    worst: float
    held_out: float | None
    confidence: float
    draws: Floats
    """(resamples, 2) S_min and E_min of refits, from which other intervals are made."""

    def steps(self, batch: float) -> float:
        """S(B)."""
        return self.least_steps + self.least_samples / batch

    def samples(self, batch: float) -> float:
        """E(B)."""
        return batch * self.steps(batch)

    def efficiency(self, batch: float, base: float) -> float:
        """E(base) / E(batch): how much further a sample goes at `base`."""
        return self.samples(base) / self.samples(batch)

    def steps_interval(self, batch: float) -> Interval:
        """S(B) with its interval."""
        tail = (1 - self.confidence) / 2
        low, high = np.quantile(self.draws @ np.array([1.0, 1.0 / batch]), [tail, 1 - tail])
        return Interval(self.steps(batch), float(low), float(high))


def fit(batches: Sequence[float], steps: Sequence[float], *, confidence: float = 0.9, seed: int = 0) -> Hyperbola:
    """Fit runs to a target.

    Args:
        batches: (runs,) batch size of each; a size may stand there several times, with other seeds.
        steps: (runs,) steps that it took to the target, above 0. Runs that did not reach it cannot be used.
        confidence: of the bootstrap interval.
        seed: of the bootstrap.

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
    least_steps, least_samples = _least_squares(sizes, counts[None])[0]
    critical = least_samples / least_steps if least_steps > 0 else float("inf")
    _require_knee(critical, different)
    expected = least_steps + least_samples / sizes
    draws = _refits(sizes, counts, expected, seed)
    tail = (1 - confidence) / 2
    with np.errstate(divide="ignore"):
        low, high = np.quantile(draws[:, 1] / draws[:, 0], [tail, 1 - tail], method="inverted_cdf")
    errors = [abs(float(np.mean(counts[sizes == size] / expected[sizes == size])) - 1) for size in different]
    return Hyperbola(
        least_steps=float(least_steps),
        least_samples=float(least_samples),
        critical=Interval(float(critical), float(low), float(high)),
        worst=max(errors),
        held_out=_held_out(sizes, counts) if len(different) > LEAST_BATCHES else None,
        confidence=confidence,
        draws=draws,
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


def _least_squares(sizes: Floats, steps: Floats) -> Floats:
    """(draws, 2) S_min and E_min, 0 or more, of least squared errors relative to the fit.

    Args:
        sizes: (runs,).
        steps: (draws, runs).
    """
    expected = steps
    for _ in range(_REWEIGHTINGS):
        found = _weighted(sizes, steps, expected)
        expected = found[:, :1] + found[:, 1:] / sizes
    return found


def _weighted(sizes: Floats, steps: Floats, expected: Floats) -> Floats:
    """The same for given denominators of the relative errors, (draws, runs)."""
    one, two, wanted = 1.0 / expected, 1.0 / (sizes * expected), steps / expected
    a11, a12, a22 = (one * one).sum(1), (one * two).sum(1), (two * two).sum(1)
    b1, b2 = (one * wanted).sum(1), (two * wanted).sum(1)
    determinant = a11 * a22 - a12 * a12
    both = np.stack([(a22 * b1 - a12 * b2) / determinant, (a11 * b2 - a12 * b1) / determinant], axis=1)
    # With one of two coefficients below 0, the best with none below 0 has it at 0.
    no_steps = np.stack([np.zeros_like(b2), b2 / a22], axis=1)
    no_samples = np.stack([b1 / a11, np.zeros_like(b1)], axis=1)
    found: Floats = np.where(both[:, :1] < 0, no_steps, np.where(both[:, 1:] < 0, no_samples, both))
    return found


def _refits(sizes: Floats, counts: Floats, expected: Floats, seed: int) -> Floats:
    """Refits to resampled relative residuals, which are first made as large as their degrees of freedom ask for."""
    residuals = (counts / expected - 1) * np.sqrt(len(counts) / (len(counts) - 2))
    residuals -= residuals.mean()
    chosen = np.random.default_rng(seed).choice(residuals, size=(_RESAMPLES, len(counts)))
    return _least_squares(sizes, expected * np.maximum(1 + chosen, 0.05))


def _held_out(sizes: Floats, counts: Floats) -> float:
    largest = sizes.max()
    rest = sizes < largest
    least_steps, least_samples = _least_squares(sizes[rest], counts[rest][None])[0]
    measured = float(np.mean(counts[~rest]))
    return float((least_steps + least_samples / largest) / measured - 1)
