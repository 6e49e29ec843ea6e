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
from scipy.optimize import nnls

from paceline.records.errors import PacelineError
from paceline.stats.intervals import Interval, Joint, quantile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LEAST_BATCHES = 3
_REWEIGHTINGS = 6


@dataclass(frozen=True)
class Hyperbola:
    """The fit.

    Attributes:
        least: S_min and E_min, with the covariance that the residuals say of them.
        degrees: of freedom of the residuals.
        worst: the largest relative error of the fit at a batch size (mean over its runs).
        held_out: relative error of the prediction for the largest batch from a fit without it; None with three batches.
    """

    least: Joint
    degrees: int
    worst: float
    held_out: float | None

    @cached_property
    def critical(self) -> Interval:
        """B_crit with its interval; the upper end is infinite where S_min cannot be told from 0."""
        return self._ratio((0, 1), (1, 0))

    @property
    def least_steps(self) -> Interval:
        """S_min."""
        return self.least.sum_of((1, 0))

    @property
    def least_samples(self) -> Interval:
        """E_min."""
        return self.least.sum_of((0, 1))

    def steps(self, batch: float) -> Interval:
        """S(B) with its interval."""
        return self.least.sum_of((1, 1 / batch))

    def efficiency(self, batch: float, base: float) -> Interval:
        """E(base) / E(batch), how much further a sample goes at `base`; with its interval, by Fieller's theorem."""
        found = self._ratio((base, 1), (batch, 1))
        return Interval.around(found.value) if batch == base else found

    def _ratio(self, top: tuple[float, float], bottom: tuple[float, float]) -> Interval:
        found = self.least.ratio(top, bottom)
        return Interval.around(found.value, found.low, found.high)


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
    least = _least_squares(sizes, counts)
    _require_knee(least[1] / least[0] if least[0] > 0 else math.inf, different)
    design = _design(sizes)
    expected = design @ least
    relative = counts / expected
    degrees = len(counts) - 2
    weighted = design / expected[:, None]
    covariance = ((relative - 1) ** 2).sum() / degrees * np.linalg.inv(weighted.T @ weighted)
    return Hyperbola(
        least=Joint(least, covariance, quantile(confidence, degrees)),
        degrees=degrees,
        worst=max(abs(float(relative[sizes == size].mean()) - 1) for size in different),
        held_out=_held_out(sizes, counts) if len(different) > LEAST_BATCHES else None,
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


def _design(sizes: Floats) -> Floats:
    """(runs, 2): what S_min and E_min count in the steps at each batch."""
    return np.stack([np.ones(len(sizes)), 1 / sizes], axis=1)


def _least_squares(sizes: Floats, steps: Floats) -> Floats:
    """S_min and E_min, 0 or more, of least squared errors relative to the fit.

    Args:
        sizes, steps: (runs,).
    """
    design, expected = _design(sizes), steps
    for _ in range(_REWEIGHTINGS):
        least: Floats = nnls(design / expected[:, None], steps / expected)[0]
        expected = design @ least
    return least


def _held_out(sizes: Floats, counts: Floats) -> float:
    largest = sizes.max()
    rest = sizes < largest
    predicted = float(np.array([1, 1 / largest]) @ _least_squares(sizes[rest], counts[rest]))
    return predicted / float(np.mean(counts[~rest])) - 1
