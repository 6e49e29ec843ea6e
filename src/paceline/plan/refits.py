"""How far a step's time is known: refits to what might have been measured, from what might have been assumed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from paceline.plan.network import FittedLink
from paceline.plan.step_fit import Priors, fit
from paceline.plan.step_time import Observed, Setting, StepTime
from paceline.stats.intervals import Interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

REFITS = 60
_LEAST_NOISE = 0.02
"""Of a measured median, relative: few settings can look as if they had none."""
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
    residuals = np.log([each.step_s for each in observed]) - np.log(fitted)
    left = max(1, len(observed) - _FITTED)
    noise = max(_LEAST_NOISE, float(np.sqrt((residuals**2).sum() / left)))
    generator = np.random.default_rng(0)
    found = []
    for number in range(REFITS):
        tell(number, REFITS)
        drawn: Floats = fitted * np.exp(noise * generator.standard_normal(len(fitted)))
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
                priors=Priors().drawn(generator),
                near=model.coefficients,
            )
        )
    tell(REFITS, REFITS)
    return found


def interval(model: StepTime, drawn: Sequence[StepTime], setting: Setting, confidence: float) -> Interval:
    """Seconds of a step at `setting`; without refits nothing is known of its ends."""
    best = model.step_s(setting)
    if not drawn:
        return Interval(best, 0.0, float("inf"))
    tail = (1 - confidence) / 2
    low, high = np.quantile([one.step_s(setting) for one in drawn], [tail, 1 - tail])
    # Coefficients that are 0 can only be drawn larger, so the best fit may lie at an end of what refits say.
    return Interval(best, min(best, float(low)), max(best, float(high)))
