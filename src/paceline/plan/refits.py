"""How far a step's time is known: refits to what might have been measured, from what might have been assumed; and the
error of the formula itself (discrepancy.py) on top."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from paceline.plan.discrepancy import Discrepancy, quantile_of_mixture
from paceline.plan.network import FittedLink
from paceline.plan.step_fit import drawn_priors, fit
from paceline.plan.step_time import Observed, Setting, StepTime
from paceline.stats.intervals import Interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

REFITS = 60
_LEAST_NOISE = 0.01
"""Of a measured median, relative: few settings can look as if they had none."""
_LIKE_ALL = 2
_FITTED = 4
"""Numbers that the measurements decide, about; the others are the priors'."""


def refits(
    model: StepTime, observed: Sequence[Observed], link: FittedLink | None, tell: Callable[[int, int], None]
) -> list[StepTime]:
    """Fits to the fitted times with noise as large as the residuals, of priors drawn from their deviations, with the
    network and jitter that other measurements of the same kind would have given.

    Numbers that the measurements decide scatter by the noise, those that they leave open by their priors.

    Args:
        model: the fit.
        observed: what it was made from.
        link: of the probe; None where the network was given, and then it stays as it is.
        tell: is called with how many refits are done, and of how many.
    """
    fitted = np.array([model.step_s(each.setting) for each in observed])
    noise = noise_of(model, observed)
    scatter = np.array([noise[each.setting.workers] for each in observed])
    generator = np.random.default_rng(0)
    found = []
    for number in range(REFITS):
        tell(number, REFITS)
        drawn: Floats = fitted * np.exp(scatter * generator.standard_normal(len(fitted)))
        again = [replace(each, step_s=float(time)) for each, time in zip(observed, drawn, strict=True)]
        network = model.network
        if link is not None:
            network = replace(network, link=link.drawn(generator))
        found.append(
            fit(
                again,
                network,
                model.size_bytes,
                model.jitter.redrawn(generator),
                processors=model.processors,
                priors=drawn_priors(generator),
                near=model.coefficients,
            )
        )
    tell(REFITS, REFITS)
    return found


def noise_of(model: StepTime, observed: Sequence[Observed]) -> dict[int, float]:
    """Relative deviation of runs from the fit, by the number of workers: runs that share cores or a network scatter
    several times as much as those of one worker. Few runs of a number are weighed with all others, as `_LIKE_ALL` runs.
    """
    squares: dict[int, list[float]] = {}
    for each in observed:
        squares.setdefault(each.setting.workers, []).append(math.log(each.step_s / model.step_s(each.setting)) ** 2)
    total = sum(sum(own) for own in squares.values())
    left = max(1, len(observed) - _FITTED)
    lost = len(observed) / left  # residuals are too small by what the fit has taken up
    shared = total / len(observed)
    return {
        workers: max(_LEAST_NOISE, math.sqrt(lost * (sum(own) + _LIKE_ALL * shared) / (len(own) + _LIKE_ALL)))
        for workers, own in squares.items()
    }


@dataclass(frozen=True)
class Predictor:
    """A fit with what it is known to.

    Attributes:
        model: the best fit.
        refits: of it; without any, nothing is known of the ends of intervals.
        discrepancy: the error of the formula.
        confidence: of intervals, between 0 and 1.
    """

    model: StepTime
    refits: Sequence[StepTime]
    discrepancy: Discrepancy
    confidence: float

    def step(self, setting: Setting) -> Interval:
        """Seconds of a step at `setting`."""
        return self._around(lambda model: model.step_s(setting), setting)

    def efficiency(self, setting: Setting, alone: Setting) -> Interval:
        """Throughput over that of `alone` times the workers. Both are from the same refit; their own errors are not the
        same, but for the step of one worker itself."""
        settings = () if setting == alone else (setting, alone)
        return self._around(
            lambda model: model.samples_per_s(setting) / (setting.workers * model.samples_per_s(alone)), *settings
        )

    def _around(self, of: Callable[[StepTime], float], *settings: Setting) -> Interval:
        """What the refits say, each with the error of the formula at `settings`; exact where that has none."""
        best = of(self.model)
        if not settings:
            return Interval.around(best)
        if not self.refits:
            return Interval(best, 0.0, math.inf)
        deviations = [
            math.hypot(*(self.discrepancy.deviation(each, one.parts(each)) for each in settings)) for one in self.refits
        ]
        logs, tail = [math.log(of(one)) for one in self.refits], (1 - self.confidence) / 2
        # Coefficients that are 0 can only be drawn larger, so the best fit may lie at an end of what refits say.
        return Interval.around(
            best, *(math.exp(quantile_of_mixture(logs, deviations, chance)) for chance in (tail, 1 - tail))
        )
