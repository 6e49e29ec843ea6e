"""The numbers of a step's time from measured settings; weak priors decide what those leave open."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING

import numpy as np

from paceline.plan.collectives import Network
from paceline.plan.jitter import Jitter
from paceline.plan.step_time import Coefficients, Observed, Setting, StepTime, parts_of
from paceline.records.errors import PacelineError
from paceline.records.plan_results import HeldOut

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_NOISE = 0.03
"""Relative error of a measured median, against which priors are weighed."""
_PRIORS = {
    "floor": (0.0, 1.0),  # h, in units of the shortest measured step
    "rest": (0.0, 1.0),  # r, likewise
    "late": (0.3, 0.3),  # q
    "slower": (0.0, 0.7),  # log x
    "crowding": (0.0, 0.3),  # i
    "bound": (1.0, 2.0),  # u: training on a processor keeps it busy
}
"""Mean and deviation of the unknowns before anything was measured: so wide that they only decide what the measurements
leave open. The order is that of `Coefficients`."""
_MEANS, _DEVIATIONS = (np.array(each) for each in zip(*_PRIORS.values(), strict=True))
_LEAST = (0.0, 0.0, 0.0, 0.0, 0.0, -3.0, 0.0, 0.0)
_MOST = (50.0, 20.0, 50.0, 50.0, 1.0, 3.0, 5.0, 1.0)
_SLOWER = 5
"""The place of x, of which the logarithm is fitted."""


def drawn_priors(generator: np.random.Generator) -> Floats:
    """Means of other priors, as far off as their deviations say: what they decide is known no better than that."""
    found: Floats = _MEANS + _DEVIATIONS * generator.standard_normal(len(_MEANS))
    return found


def require_sizes(observed: Sequence[Observed]) -> None:
    """Refuse settings that cannot be fitted.

    Raises:
        PacelineError: fewer than two batch sizes a worker.
    """
    if len({each.setting.micro for each in observed}) < 2:
        raise PacelineError(
            "all runs have the same batch a worker",
            why="work and overhead of a step can only be told apart where the batch differs",
            hint="one more short run with another --global-batch",
        )


def fit(
    observed: Sequence[Observed],
    network: Network,
    size_bytes: float,
    jitter: Jitter | None = None,
    *,
    processors: float | None = None,
    priors: Floats | None = None,
    near: Coefficients | None = None,
) -> StepTime:
    """Fit the model: least squares of logarithms of times, with unknowns in units that make them about 1.

    Args:
        observed: settings that were measured: at least two batch sizes; without several numbers of workers, what the
            network costs is the probe's word alone, and without more workers than `processors`, what taking turns
            costs is the prior's.
        network: from a probe, or given.
        size_bytes: of the gradients that are summed in each step.
        jitter: of one worker; taken from `observed` when it is left out.
        processors: workers that the cores of a machine compute at once; None where they take no turns.
        priors: means of others than the usual ones, see `drawn_priors`.
        near: where to begin; without it two places are tried.

    Raises:
        PacelineError: fewer than two batch sizes a worker.
    """
    require_sizes(observed)
    from scipy.optimize import least_squares

    if jitter is None:
        alone = [one.times for one in observed if one.times is not None and one.setting.workers == 1]
        jitter = Jitter(np.concatenate([times / np.median(times) for times in alone]) if alone else ())
    means = _MEANS if priors is None else priors
    settings = [
        (each.setting, network.all_reduce(each.setting.workers, size_bytes), jitter(each.setting.workers))
        for each in observed
    ]
    measured = np.log([each.step_s for each in observed])
    slope, fixed = _start(observed)
    unit = float(np.exp(measured.min()))
    units = np.array([unit, slope, unit, unit, 1.0, 1.0, 1.0, 1.0])

    def coefficients(x: Floats) -> Coefficients:
        values = x * units
        values[_SLOWER] = math.exp(x[_SLOWER])
        return Coefficients(*values.tolist())

    def residuals(x: Floats) -> Floats:
        of = coefficients(x)
        predicted = [parts_of(of, *each, processors).total_s for each in settings]
        return np.concatenate([(np.log(predicted) - measured) / _NOISE, (x[2:] - means) / _DEVIATIONS])

    starts = [[fixed / unit, 1.0, 0.0, 0.05, 0.3, 0.0, 0.02, 0.9], [0.1, 1.0, 0.9, 0.05, 0.6, 0.3, 0.02, 0.5]]
    if near is not None:
        start = np.array(astuple(near)) / units
        start[_SLOWER] = math.log(near.slower)
        starts = [start.tolist()]
    results = [
        least_squares(residuals, np.clip(start, _LEAST, _MOST), bounds=(_LEAST, _MOST), loss="soft_l1", x_scale=0.1)
        for start in starts
    ]
    best = coefficients(min(results, key=lambda result: result.cost).x)
    most = max(each.setting.workers for each in observed)
    return StepTime(best, network, size_bytes, jitter, most, processors)


def _start(observed: Sequence[Observed]) -> tuple[float, float]:
    """Seconds a sample and seconds a micro-batch, from the settings with the fewest workers."""
    fewest = min(each.setting.workers for each in observed)
    rows = [each for each in observed if each.setting.workers == fewest]
    if len({each.setting.micro for each in rows}) < 2:
        rows = list(observed)
    micro = np.array([each.setting.micro for each in rows])
    single = np.array([each.step_s / each.setting.accumulation for each in rows])
    slope, fixed = np.polyfit(micro, single, 1)
    smallest = float((single / micro).min())
    return max(float(slope), 0.05 * smallest), max(float(fixed), 0.0)


def held_out(
    observed: Sequence[Observed], network: Network, size_bytes: float, processors: float | None = None
) -> list[HeldOut]:
    """Predictions for the settings with the most workers, and for those with the largest batch a worker, each from a
    fit without them; fewer where too little would be left."""
    checked: dict[Setting, HeldOut] = {}
    keys: tuple[Callable[[Observed], float], ...] = (lambda o: o.setting.workers, lambda o: o.setting.micro)
    for key in keys:
        most = max(key(each) for each in observed)
        rest = [each for each in observed if key(each) < most]
        if len({each.setting.micro for each in rest}) < 2:
            continue
        model = fit(rest, network, size_bytes, processors=processors)
        for each in observed:
            if key(each) == most:
                predicted = model.step_s(each.setting)
                checked[each.setting] = HeldOut(what=str(each.setting), measured=each.step_s, predicted=predicted)
    return list(checked.values())
