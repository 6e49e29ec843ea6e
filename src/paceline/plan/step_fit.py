"""The numbers of a step's time from measured settings; weak priors decide what those leave open."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple, dataclass
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
_DEVIATIONS = {"floor": 1.0, "rest": 1.0, "late": 0.3, "slower": 0.7, "crowding": 0.3, "bound": 2.0}
"""Of the priors: so wide that they only decide what the measurements leave open."""
_LEAST = (0.0, 0.0, 0.0, 0.0, 0.0, -3.0, 0.0, 0.0)
_MOST = (50.0, 20.0, 50.0, 50.0, 1.0, 3.0, 5.0, 1.0)


@dataclass(frozen=True)
class Priors:
    """What the numbers are taken to be before anything was measured.

    Attributes:
        floor: h, in units of the shortest measured step.
        rest: r, likewise.
        late: q.
        slower: log x.
        crowding: i.
        bound: u: training on a processor keeps it busy.
    """

    floor: float = 0.0
    rest: float = 0.0
    late: float = 0.3
    slower: float = 0.0
    crowding: float = 0.0
    bound: float = 1.0

    def drawn(self, generator: np.random.Generator) -> Priors:
        """Others, as far off as their deviations say: what they decide is known no better than that."""
        means: dict[str, float] = asdict(self)
        return Priors(
            **{name: mean + _DEVIATIONS[name] * float(generator.standard_normal()) for name, mean in means.items()}
        )


def fit(
    observed: Sequence[Observed],
    network: Network,
    size_bytes: float,
    jitter: Jitter | None = None,
    *,
    processors: float | None = None,
    priors: Priors | None = None,
    near: Coefficients | None = None,
) -> StepTime:
    """Fit the model.

    Args:
        observed: settings that were measured: at least two batch sizes; without several numbers of workers, what the
            network costs is the probe's word alone, and without more workers than `processors`, what taking turns
            costs is the prior's.
        network: from a probe, or given.
        size_bytes: of the gradients that are summed in each step.
        jitter: of one worker; taken from `observed` when it is left out.
        processors: workers that the cores of a machine compute at once; None where they take no turns.
        priors: others than the usual ones.
        near: where to begin; without it two places are tried.

    Raises:
        PacelineError: fewer than two batch sizes a worker.
    """
    if len({each.setting.micro for each in observed}) < 2:
        raise PacelineError(
            "one batch size a worker is too few to tell work from overhead",
            hint="runs at two batch sizes or more; three and more show how good the prediction is",
        )
    jitter = jitter or Jitter(_ratios(observed))
    problem = _Problem(observed, network, size_bytes, jitter, processors, priors or Priors())
    most = max(each.setting.workers for each in observed)
    return StepTime(problem.solved(near), network, size_bytes, jitter, most, processors)


def _ratios(observed: Sequence[Observed]) -> Floats:
    alone = [one.times / np.median(one.times) for one in observed if one.times is not None and one.setting.workers == 1]
    return np.concatenate(alone) if alone else np.empty(0)


class _Problem:
    """Least squares of logarithms of times; the unknowns, in units that make them about 1, are in the order of
    `Coefficients`, with the logarithm of x."""

    def __init__(
        self,
        observed: Sequence[Observed],
        network: Network,
        size_bytes: float,
        jitter: Jitter,
        processors: float | None,
        priors: Priors,
    ) -> None:
        self._processors = processors
        self._settings = [
            (each.setting, network.all_reduce(each.setting.workers, size_bytes), jitter(each.setting.workers))
            for each in observed
        ]
        self._measured = np.log([each.step_s for each in observed])
        self._slope, self._fixed = _start(observed)
        self._unit = float(np.exp(self._measured.min()))
        self._priors = np.array(astuple(priors))
        self._deviations = np.array([_DEVIATIONS[name] for name in asdict(priors)])

    def solved(self, near: Coefficients | None) -> Coefficients:
        """The best fit."""
        from scipy.optimize import least_squares

        starts = [[self._fixed / self._unit, 1.0, 0.0, 0.05, 0.3, 0.0, 0.02, 0.9]]
        starts.append([0.1, 1.0, 0.9, 0.05, 0.6, 0.3, 0.02, 0.5])
        if near is not None:
            starts = [self._unknowns(near)]
        results = [
            least_squares(
                self._residuals, np.clip(start, _LEAST, _MOST), bounds=(_LEAST, _MOST), loss="soft_l1", x_scale=0.1
            )
            for start in starts
        ]
        return self._coefficients(min(results, key=lambda result: result.cost).x)

    def _residuals(self, x: Floats) -> Floats:
        of = self._coefficients(x)
        predicted = [parts_of(of, *each, self._processors).total_s for each in self._settings]
        data = (np.log(predicted) - self._measured) / _NOISE
        return np.concatenate([data, (x[2:] - self._priors) / self._deviations])

    def _coefficients(self, found: Floats) -> Coefficients:
        x = [float(value) for value in found]
        return Coefficients(
            fixed=x[0] * self._unit, slope=x[1] * self._slope, floor=x[2] * self._unit, rest=x[3] * self._unit,
            late=x[4], slower=math.exp(x[5]), crowding=x[6], bound=x[7],
        )  # fmt: skip

    def _unknowns(self, of: Coefficients) -> list[float]:
        inner = [of.fixed / self._unit, of.slope / self._slope, of.floor / self._unit, of.rest / self._unit]
        return [*inner, of.late, math.log(of.slower), of.crowding, of.bound]


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
