"""A learning curve: how the error falls with the number of samples, and what more of them would give.

    e(m) = floor + scale m^-exponent        floor, scale >= 0

(Hestness et al. 2017, arXiv 1712.00409). Given the exponent, the rest is linear, so the fit is a search along one axis
with least squares of relative errors at each point of it (variable projection): it cannot stop half-way, and needs no
starting point.

**Intervals are profiles.** For a value p at m samples, of all curves through (m, p) the one that fits best is sought; p
is inside where that fits not much worse than the best of all, by an F test. Floor and exponent trade off against each
other over the sizes that were measured, and only this shows it: the usual interval from a linearised fit, or from
refits to resampled residuals, holds the truth too seldom. The noise is that of the residuals or of repeats of one size,
whichever is larger; where the former are too large for the latter to explain (an F test), the curve does not follow the
formula, and each size counts once.

**Beyond the largest size the formula itself may fail**: where curves bend a little in the logarithms, such intervals
hold two thirds of what is at four times the largest size. So their ends lie further out by a deviation `drift` for each
doubling beyond the largest size, added in squares. The drift is about 0.03, and more where a fit without the largest
size was wrong there by more than its own interval explains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from scipy.special import fdtri

from paceline.records.errors import PacelineError
from paceline.stats.intervals import Interval, quantile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Numbers = TypeVar("Numbers", float, "Floats")

LEAST_SIZES = 4
FAR = 4.0
"""Predictions beyond so many times the largest size rest on the form of the curve more than on what was measured."""
_EXPONENTS = np.geomspace(0.02, 3.0, 400)
_ZOOMS = 2
_LACK = 0.05
"""Chance of taking a curve that follows the formula for one that does not."""
_REWEIGHTINGS = 4
_HALVINGS = 24
_MOST = 1e9
"""Times the smallest size: no data set is larger."""
_DRIFT, _DRIFT_DEGREES = 0.03, 2
"""Error of the formula for each doubling beyond the largest size, relative, and as how many held-out sizes it counts.
Chosen on 200 made-up curves (tests/stats/test_power_law.py has the kind), of which it holds 90 %."""
_NO_END = 1e100
"""So many samples that only the floor is left."""
_LARGEST_LOG = 200.0


@dataclass(frozen=True)
class Curve:
    """The best curve.

    Attributes:
        scale, exponent, floor: of the formula.
    """

    scale: float
    exponent: float
    floor: float

    def at(self, size: Numbers) -> Numbers:
        """e(m)."""
        found: Numbers = self.floor + self.scale * size**-self.exponent
        return found


@dataclass(frozen=True)
class LearningCurve:
    """A fit with what it was made from.

    Attributes:
        curve: the best.
        sizes, errors: (runs,) that went in.
        noise: relative deviation of runs from the curve, from which intervals are made.
        degrees: of freedom of `noise`; few where the curve does not follow the formula.
        scatter: relative deviation of runs of one size from each other; `noise` where no size was repeated.
        follows: whether sizes lie as near to the formula as runs of one size to each other let expect; True where no
            size was repeated, since nothing can tell.
        confidence: of intervals.
        known_drift: 0 takes the formula to hold beyond the largest size; None finds `drift` from the runs.
    """

    curve: Curve
    sizes: Floats
    errors: Floats
    noise: float
    degrees: int
    scatter: float
    follows: bool
    confidence: float
    known_drift: float | None = None

    @cached_property
    def drift(self) -> float:
        """Relative deviation of the truth from the formula for each doubling beyond the largest size."""
        return _drift(self.sizes, self.errors) if self.known_drift is None else self.known_drift

    @property
    def largest(self) -> float:
        """The largest size that went in."""
        return float(self.sizes.max())

    @property
    def at_largest(self) -> Floats:
        """(runs,) errors at the largest size."""
        found: Floats = self.errors[self.sizes == self.largest]
        return found

    def predict(self, size: float, *, runs: int | None = None) -> Interval:
        """The error at `size` samples, with its interval.

        Args:
            size: m, above 0; beyond `FAR` times the largest the interval rests on the formula.
            runs: None for the curve itself; else for the mean of so many new runs, which scatter around it.
        """
        best = self.curve.at(size)
        low, high = self._drifted(size, best, *self._profile(size))
        if runs is not None:
            own = self._quantile * self.scatter * best / math.sqrt(runs)
            low, high = best - math.hypot(best - low, own), best + math.hypot(high - best, own)
        return Interval(best, max(0.0, low), high)

    def _drifted(self, size: float, best: float, low: float, high: float) -> tuple[float, float]:
        """Both ends, further out by the drift, in the logarithm."""
        doublings = math.log2(size / self.largest)
        if doublings <= 0 or best <= 0 or not self.drift:
            return low, high
        further = quantile(self.confidence) * self.drift * doublings
        below = math.hypot(math.log(best / low), further) if low > 0 else math.inf
        return best * math.exp(-below), best * math.exp(min(math.hypot(math.log(high / best), further), _LARGEST_LOG))

    @property
    def _quantile(self) -> float:
        return quantile(self.confidence, self.degrees)

    @property
    def exponent(self) -> Interval:
        """The exponent, with the interval of all curves that fit not much worse; 0.02 to 3 are tried."""
        weights, limit = self._limit
        tried = _plausible(self.sizes, self.errors, weights, limit)
        inside = tried[_fits(self.sizes, self.errors, weights, tried)[0] <= limit]
        return Interval.around(self.curve.exponent, *inside.tolist())

    @property
    def floor(self) -> Interval:
        """What no number of samples gets below, if the formula holds, with its interval."""
        return Interval.around(self.curve.floor, *self._profile(_NO_END))

    @cached_property
    def _limit(self) -> tuple[Floats, float]:
        """Weights of squares, and the most that their sum may be for a curve to be inside."""
        weights = 1 / self.curve.at(self.sizes) ** 2
        return weights, _best_fit(self.sizes, self.errors, weights)[0] + (self.noise * self._quantile) ** 2

    def _profile(self, size: float) -> tuple[float, float]:
        """Both ends at `size`: of curves through (size, value), the best one is as good as the limit allows."""
        weights, limit = self._limit
        exponents = _plausible(self.sizes, self.errors, weights, limit)
        there = size**-exponents
        rise = self.sizes[None] ** -exponents[:, None] - there[:, None]  # e(m) = value + scale * rise
        square = (weights * rise**2).sum(1)
        best = self.curve.at(size)

        def inside(value: float) -> bool:
            away = self.errors - value
            scale = (weights * rise * away).sum(1) / square
            scale = np.clip(scale, 0.0, value / there)  # the floor is value - scale * there, 0 or more
            return bool((weights * (scale[:, None] * rise - away) ** 2).sum(1).min() <= limit)

        return best / _end(lambda factor: inside(best / factor)), best * _end(lambda factor: inside(best * factor))

    def needed(self, error: float) -> Interval:
        """How many samples bring the error down to `error`: with a lower and an upper end, infinite where the floor, or
        what the data allow it to be, stands above.

        Args:
            error: above 0.
        """
        smallest = float(self.sizes.min())

        def until(end: str) -> float:
            return smallest * _end(lambda factor: getattr(self.predict(factor * smallest), end) > error, most=_MOST)

        return Interval(until("value"), until("low"), until("high"))


def fit(sizes: Sequence[float], errors: Sequence[float], *, confidence: float = 0.9) -> LearningCurve:
    """Fit errors at several sizes.

    Args:
        sizes: (runs,) training samples, above 0; a size may stand there several times, with other seeds.
        errors: (runs,) above 0: a loss, or one minus an accuracy.
        confidence: of intervals, between 0 and 1.

    Raises:
        PacelineError: fewer than four sizes, or a value that is not above 0.
    """
    m, e = np.asarray(sizes, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    different = np.unique(m)
    if len(different) < LEAST_SIZES:
        raise PacelineError(
            f"{len(different)} sizes are too few for a learning curve",
            why="three numbers are fitted, and a fourth size has to show whether the formula holds",
            hint=f"runs at {LEAST_SIZES} fractions of the data or more",
        )
    if not ((m > 0).all() and (e > 0).all() and np.isfinite(e).all()):
        raise PacelineError(
            "a learning curve needs errors above 0",
            why="they are compared in proportion to each other",
            hint="leave out runs that diverged; where every sample is right, there is nothing to extrapolate",
        )
    curve = _best(m, e)
    noise, degrees, scatter, follows = _spread(m, e, curve)
    return LearningCurve(curve, m, e, noise, degrees, scatter, follows, confidence)


def without_largest(sizes: Floats, errors: Floats, *, confidence: float = 0.9) -> LearningCurve | None:
    """The fit without the largest size, to hold it against that; None where too few sizes are left."""
    rest = sizes < sizes.max()
    if len(np.unique(sizes[rest])) < LEAST_SIZES:
        return None
    return fit(sizes[rest].tolist(), errors[rest].tolist(), confidence=confidence)


def _drift(m: Floats, e: Floats) -> float:
    """Of the formula beyond the largest size, from what was assumed and from how wrong it was at that size."""
    squares, degrees = _DRIFT_DEGREES * _DRIFT**2, _DRIFT_DEGREES
    before = without_largest(m, e)
    if before is not None:
        largest = float(m.max())
        measured = e[m == largest]
        expected = replace(before, known_drift=0.0).predict(largest, runs=len(measured))
        off = math.log(float(measured.mean()) / expected.value)
        end = expected.high if off > 0 else expected.low
        own = abs(math.log(max(end, 1e-300) / expected.value)) / quantile(before.confidence)
        squares += max(0.0, off**2 - own**2) / math.log2(largest / before.largest) ** 2
        degrees += 1
    return math.sqrt(squares / degrees)


def _best(m: Floats, e: Floats) -> Curve:
    weights = 1 / e**2
    for _ in range(_REWEIGHTINGS):
        _, curve = _best_fit(m, e, weights)
        weights = 1 / curve.at(m) ** 2
    return curve


def _best_fit(m: Floats, e: Floats, weights: Floats) -> tuple[float, Curve]:
    """The least weighted sum of squares, and the curve that has it."""
    exponents = _EXPONENTS
    for zoom in range(_ZOOMS + 1):
        squares, scale, floor = _fits(m, e, weights, exponents)
        best = int(squares.argmin())
        if zoom < _ZOOMS:
            exponents = np.linspace(exponents[max(0, best - 1)], exponents[min(len(exponents) - 1, best + 1)], 81)
    return float(squares[best]), Curve(float(scale[best]), float(exponents[best]), float(floor[best]))


def _fits(m: Floats, e: Floats, weights: Floats, exponents: Floats) -> tuple[Floats, Floats, Floats]:
    """For each exponent the least weighted sum of squares, and the scale and floor that have it."""
    powers = m[None] ** -exponents[:, None]
    scale, floor = _linear(powers, e, weights)
    return (weights * (floor[:, None] + scale[:, None] * powers - e) ** 2).sum(1), scale, floor


def _plausible(m: Floats, e: Floats, weights: Floats, limit: float) -> Floats:
    """Exponents for which some curve fits within the limit, finely; no other can do so through a given point."""
    inside = np.flatnonzero(_fits(m, e, weights, _EXPONENTS)[0] <= limit)
    if not len(inside):
        inside = np.array([_fits(m, e, weights, _EXPONENTS)[0].argmin()])
    first, last = max(0, int(inside[0]) - 1), min(len(_EXPONENTS) - 1, int(inside[-1]) + 1)
    return np.geomspace(_EXPONENTS[first], _EXPONENTS[last], len(_EXPONENTS))


def _linear(powers: Floats, e: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """(exponents,) each: scale and floor, 0 or more, of least weighted squares for each row of `powers`."""
    total, first, second = weights.sum(), (weights * powers).sum(1), (weights * powers**2).sum(1)
    right, both = (weights * e).sum(), (weights * powers * e).sum(1)
    determinant = total * second - first**2
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = (total * both - first * right) / determinant
        floor = (second * right - first * both) / determinant
    scale = np.where(floor < 0, both / second, scale)
    floor = np.where(floor < 0, 0.0, floor)
    flat = ~(scale > 0)
    return np.where(flat, 0.0, scale), np.where(flat, right / total, floor)


def _end(holds: Callable[[float], bool], most: float = 1e6) -> float:
    """The factor, 1 and more, up to which `holds` does, which it does on one side of it: infinite beyond `most`."""
    if not holds(1.0):
        return 1.0
    inside, outside = 1.0, 1.001
    while holds(outside):
        if outside >= most:
            return math.inf
        inside, outside = outside, min(most, outside**2)
    for _ in range(_HALVINGS):
        middle = math.sqrt(inside * outside)
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return inside


def _spread(m: Floats, e: Floats, curve: Curve) -> tuple[float, int, float, bool]:
    """`noise`, `degrees`, `scatter` and `follows` of a `LearningCurve`."""
    relative = e / curve.at(m)
    groups = [relative[m == size] for size in np.unique(m)]
    residual = float(((relative - 1) ** 2).sum())
    within = sum(float(((group - group.mean()) ** 2).sum()) for group in groups)
    repeats, sizes = len(m) - len(groups), len(groups) - 3
    whole = math.sqrt(residual / (len(m) - 3))
    if not repeats:
        return whole, len(m) - 3, whole, True
    own, lack = within / repeats, max(0.0, residual - within) / sizes
    if lack > own * float(fdtri(sizes, repeats, 1 - _LACK)):
        # The curve does not follow the formula: repeats of a size say the same wrong thing, so only sizes count.
        return math.sqrt(lack), sizes, math.sqrt(own), False
    if math.sqrt(own) > whole:
        return math.sqrt(own), repeats, math.sqrt(own), True
    return whole, len(m) - 3, whole, True
