"""How long a step takes, with how many workers, at which batch: a model with few numbers, fitted to what was measured.

A worker computes s micro-batches of b samples; the gradients of the last one are summed over k workers meanwhile.

    m(b) = max(h, a + c b) (1 + i (1 - 1 / g))     forward and backward of a micro-batch: work, or the floor h of
                                                   launching it; i: how much the g workers of a machine slow each other
    C    = x A(S, k)                               the sum over workers: A from a probe, x what the job makes of it
    T    = r + (s - 1) m + F + (W^p + ((1 - q) C)^p)^(1/p) + q C + J(k)        F = m / 3, W = 2 m / 3, p = 3

Of the sum, a part q comes too late to hide behind the backward W; the rest hides as far as W reaches, with a smooth
corner. r is what a step takes besides. **J(k) is jitter**: a step waits for the slowest of k workers, and the median of
the slowest of k is the quantile 2^(-1/k) of one worker's times, minus their median. Where more workers are asked for
than steps were seen, the tail is a generalised Pareto distribution's (Pickands 1975), and that is said.

The form extrapolates because each part is bounded by what it stands for; a fit of Pollux's form (Qiao et al. 2021) to
the same data, whose network term grows linearly in k without bound, does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from paceline.plan.collectives import Network
from paceline.records.errors import PacelineError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

SHARE_BACKWARD = 2 / 3
LEAST_TIMES = 20
_CORNER = 3.0
_LEAST_TAIL = 5
_NOISE = 0.03
"""Relative error of a measured median, against which priors are weighed."""
_PRIORS = {"late": (0.3, 0.3), "slower": (0.0, 0.7), "crowding": (0.0, 0.3)}
"""Mean and deviation of q, log x and i: weak, so that they only decide what the data leave open."""


@dataclass(frozen=True)
class Setting:
    """How a step is cut.

    Attributes:
        workers: k.
        micro: b, samples of a worker in one micro-batch.
        accumulation: s.
        per_node: workers on one machine; None when all are on one.
    """

    workers: int
    micro: float
    accumulation: int = 1
    per_node: int | None = None

    @property
    def batch(self) -> float:
        """Samples a step."""
        return self.workers * self.micro * self.accumulation

    @property
    def crowd(self) -> int:
        """Workers that share a machine."""
        return self.workers if self.per_node is None else min(self.workers, self.per_node)


@dataclass(frozen=True)
class Observed:
    """Steps that were measured at one setting.

    Attributes:
        setting: how they were cut.
        step_s: their median time.
        times: (steps,) single times of one worker that waited for nobody, for jitter; None where it had to wait.
    """

    setting: Setting
    step_s: float
    times: Floats | None = None


@dataclass(frozen=True)
class Parts:
    """What a step's time consists of, in seconds.

    Attributes:
        work: computing, without the floor.
        floor: what launching the computation takes beyond that.
        network: of the sum over workers, what is not hidden.
        jitter: waiting for the slowest worker.
        rest: everything else.
    """

    work: float
    floor: float
    network: float
    jitter: float
    rest: float

    @property
    def total(self) -> float:
        """The step."""
        return self.work + self.floor + self.network + self.jitter + self.rest


@dataclass(frozen=True)
class Coefficients:
    """The numbers of the model; see the module.

    Attributes:
        fixed: a.
        slope: c, seconds a sample.
        floor: h.
        rest: r.
        late: q, 0 to 1.
        slower: x, above 0.
        crowding: i, 0 and more.
    """

    fixed: float
    slope: float
    floor: float
    rest: float
    late: float
    slower: float
    crowding: float


class Jitter:
    """How much longer the slowest of k workers takes than one of them, in the median.

    Args:
        ratios: (n,) times of single steps of one worker over their median.
    """

    def __init__(self, ratios: Floats) -> None:
        self._ratios = np.sort(ratios)

    @property
    def measured(self) -> bool:
        """Whether there is anything to say."""
        return len(self._ratios) >= LEAST_TIMES

    @property
    def seen(self) -> int:
        """Workers up to which it was measured; beyond, a tail is fitted."""
        return max(1, int(0.14 * len(self._ratios)))  # some five steps lie above that quantile

    def __call__(self, workers: int) -> float:
        """As a part of the time of a step's computation."""
        if workers < 2 or not self.measured:
            return 0.0
        level = 0.5 ** (1.0 / workers)
        found = float(np.quantile(self._ratios, level)) if workers <= self.seen else self._tail(level)
        return max(0.0, found - float(np.median(self._ratios)))

    @cached_property
    def _pareto(self) -> tuple[float, float, float]:
        """Start, shape and scale of the tail; no scale where there is none."""
        from scipy.stats import genpareto

        start = float(np.quantile(self._ratios, 0.9))
        above = self._ratios[self._ratios > start] - start
        if len(above) < _LEAST_TAIL:
            return start, 0.0, 0.0
        shape, _, scale = genpareto.fit(above, floc=0.0)
        return start, min(float(shape), 0.5), float(scale)  # a heavier tail has no variance: single interruptions

    def _tail(self, level: float) -> float:
        start, shape, scale = self._pareto
        beyond = (1 - level) / 0.1  # the chance of being above, given that one is in the tail
        if not scale:
            return start
        return start + (scale * -math.log(beyond) if abs(shape) < 1e-9 else scale / shape * (beyond**-shape - 1))


@dataclass(frozen=True)
class StepTime:
    """The fitted model.

    Attributes:
        coefficients: of the formula.
        network: of the probe.
        size_bytes: S, of the gradients.
        jitter: of one worker.
        most_workers: that were measured.
    """

    coefficients: Coefficients
    network: Network
    size_bytes: float
    jitter: Jitter
    most_workers: int

    def parts(self, setting: Setting) -> Parts:
        """What a step at `setting` consists of."""
        reduce_s = self.network.all_reduce(setting.workers, self.size_bytes)
        return _parts(self.coefficients, setting, reduce_s, self.jitter(setting.workers))

    def step_s(self, setting: Setting) -> float:
        """Seconds."""
        return self.parts(setting).total

    def samples_per_s(self, setting: Setting) -> float:
        """Throughput."""
        return setting.batch / self.step_s(setting)

    def on(self, network: Network) -> StepTime:
        """The same job on another network."""
        return replace(self, network=network)


def _parts(of: Coefficients, setting: Setting, reduce_s: float, jitter: float) -> Parts:
    crowded = 1 + of.crowding * (1 - 1 / setting.crowd)
    work = (of.fixed + of.slope * setting.micro) * crowded
    micro = max(of.floor, work)
    backward = SHARE_BACKWARD * micro
    sum_s = of.slower * reduce_s
    hidden = (1 - of.late) * sum_s
    exposed = 0.0
    if sum_s:
        exposed = (backward**_CORNER + hidden**_CORNER) ** (1 / _CORNER) - backward + of.late * sum_s
    waiting = jitter * micro * setting.accumulation
    return Parts(
        work=setting.accumulation * work,
        floor=setting.accumulation * (micro - work),
        network=exposed,
        jitter=waiting,
        rest=of.rest,
    )


def fit(observed: Sequence[Observed], network: Network, size_bytes: float, jitter: Jitter | None = None) -> StepTime:
    """Fit the model.

    Args:
        observed: settings that were measured: at least two batch sizes; without several numbers of workers, what the
            network costs is the probe's word alone.
        network: from a probe, or given.
        size_bytes: of the gradients that are summed in each step.
        jitter: of one worker; taken from `observed` when it is left out.

    Raises:
        PacelineError: fewer than two batch sizes a worker.
    """
    if len({each.setting.micro for each in observed}) < 2:
        raise PacelineError(
            "one batch size a worker is too few to tell work from overhead",
            hint="runs at two batch sizes or more; three and more show how good the prediction is",
        )
    jitter = jitter or Jitter(_ratios(observed))
    reduce_s = [network.all_reduce(each.setting.workers, size_bytes) for each in observed]
    found = _least_squares(observed, reduce_s, jitter)
    return StepTime(found, network, size_bytes, jitter, max(each.setting.workers for each in observed))


def _ratios(observed: Sequence[Observed]) -> Floats:
    alone = [each.times / np.median(each.times) for each in observed if each.times is not None and len(each.times)]
    return np.concatenate(alone) if alone else np.empty(0)


def _least_squares(observed: Sequence[Observed], reduce_s: Sequence[float], jitter: Jitter) -> Coefficients:
    from scipy.optimize import least_squares

    measured = np.log([each.step_s for each in observed])
    slope, fixed = _start(observed)
    unit = float(np.exp(measured.min()))  # so that all unknowns are about 1
    waits = [jitter(each.setting.workers) for each in observed]

    def coefficients(found: Floats) -> Coefficients:
        x = [float(value) for value in found]
        return Coefficients(
            fixed=x[0] * unit, slope=x[1] * slope, floor=x[2] * unit, rest=x[3] * unit, late=x[4],
            slower=math.exp(x[5]), crowding=x[6],
        )  # fmt: skip

    def residuals(x: Floats) -> Floats:
        of = coefficients(x)
        predicted = [_parts(of, o.setting, r, w).total for o, r, w in zip(observed, reduce_s, waits, strict=True)]
        data = (np.log(predicted) - measured) / _NOISE
        (late, late_sd), (slower, slower_sd), (crowding, crowding_sd) = _PRIORS.values()
        prior = [(x[4] - late) / late_sd, (x[5] - slower) / slower_sd, (x[6] - crowding) / crowding_sd, x[2], x[3]]
        return np.concatenate([data, prior])

    lower = [0.0, 0.0, 0.0, 0.0, 0.0, -3.0, 0.0]
    upper = [50.0, 20.0, 50.0, 50.0, 1.0, 3.0, 5.0]
    starts = [[fixed / unit, 1.0, 0.0, 0.05, 0.3, 0.0, 0.02], [0.1, 1.0, 0.9, 0.05, 0.6, 0.3, 0.02]]
    results = [
        least_squares(residuals, np.clip(start, lower, upper), bounds=(lower, upper), loss="soft_l1", x_scale=0.1)
        for start in starts
    ]
    return coefficients(min(results, key=lambda result: result.cost).x)


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


@dataclass(frozen=True)
class Checked:
    """A prediction of a setting that the fit did not see.

    Attributes:
        setting: of the prediction.
        measured, predicted: seconds.
    """

    setting: Setting
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Relative: predicted over measured, minus one."""
        return self.predicted / self.measured - 1


def held_out(observed: Sequence[Observed], network: Network, size_bytes: float) -> list[Checked]:
    """Predictions for the settings with the most workers, and for those with the largest batch a worker, each from a
    fit without them; fewer where too little would be left."""
    checked: dict[Setting, Checked] = {}
    keys: tuple[Callable[[Observed], float], ...] = (lambda o: o.setting.workers, lambda o: o.setting.micro)
    for key in keys:
        most = max(key(each) for each in observed)
        rest = [each for each in observed if key(each) < most]
        if len({each.setting.micro for each in rest}) < 2:
            continue
        model = fit(rest, network, size_bytes)
        for each in observed:
            if key(each) == most:
                checked[each.setting] = Checked(each.setting, each.step_s, model.step_s(each.setting))
    return list(checked.values())
