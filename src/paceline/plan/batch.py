"""The table of batch and workers: steps, time and efficiency of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from paceline.plan import speed as planner
from paceline.plan.step_time import Setting, StepTime
from paceline.plan.steps import Steps
from paceline.records.plan_results import BatchRow, Estimate, SpeedResult, estimate
from paceline.stats.intervals import Interval

CONFIDENCE = 0.9
"""Of every interval in the table."""


@dataclass(frozen=True)
class Times:
    """How long a step takes.

    Attributes:
        model: of a step.
        interval: of a step at a setting, in seconds.
        confidence: of that interval.
    """

    model: StepTime
    interval: Callable[[Setting], Interval]
    confidence: float

    def setting(self, workers: int, batch: float) -> Setting:
        """A batch shared out among workers, on machines as the network has them."""
        return Setting(workers, batch / workers, 1, self.model.network.per_node)

    def farther(self, workers: Collection[int]) -> list[int]:
        """Of these numbers of workers those that are too far from what was measured to be relied on, ascending."""
        return sorted(count for count in workers if count > planner.FAR * self.model.most_workers)


def times_of(result: SpeedResult) -> Times:
    """What a plan of speed says of a step."""
    return Times(
        planner.model_of(result), lambda setting: planner.step_interval(result, setting), result.evidence.confidence
    )


def table(
    steps: Steps,
    times: Times | None,
    batches: Sequence[int],
    workers: Sequence[int],
    missed: Collection[int] = (),
) -> list[BatchRow]:
    """Every batch with every number of workers that can share it out.

    Args:
        steps: to the target.
        times: of a step; None leaves times out.
        batches: samples a step, ascending.
        workers: ascending.
        missed: batches at which a run did not meet the target.
    """
    return [
        _row(steps, times, batch, count, batch in missed) for batch in batches for count in workers if batch >= count
    ]


def _row(steps: Steps, times: Times | None, batch: int, workers: int, missed: bool) -> BatchRow:
    taken = steps.at(batch)
    assert taken.value is not None, "any batch gets there"
    progress = steps.efficiency_interval(batch)
    rate, system, time = None, None, None
    if times is not None:
        setting = times.setting(workers, batch)
        rate = times.model.samples_per_s(setting)
        # Beside one worker at the base batch, not at its share of this one: with a small share, steps that take as long
        # to launch as to compute would make that one slow, and further workers seem to cost nothing.
        system = rate / (workers * times.model.samples_per_s(times.setting(1, steps.base)))
        time = _time(taken, times.interval(setting), times.confidence, bounds=steps.hyperbola is None)
    return BatchRow(
        batch=batch,
        workers=workers,
        steps=taken,
        samples=batch * taken.value,
        samples_per_s=rate,
        time_s=time,
        system=system,
        statistical=progress.value,
        statistical_interval=estimate(progress.value, progress.low, progress.high),
        missed=missed,
    )


def _time(steps: Estimate, step: Interval, confidence: float, *, bounds: bool) -> Estimate:
    """Steps times seconds of a step, with both intervals, at `CONFIDENCE`. They are independent, so that their relative
    deviations add up in squares; where the ends of steps are bounds, and no interval, they simply add up."""
    assert steps.value is not None
    wider = _quantile(CONFIDENCE) / _quantile(confidence)

    def apart(of_steps: float, of_step: float) -> float:
        """By how much both ends together lie from the value, in the logarithm."""
        one = abs(math.log(of_steps / steps.value)) if of_steps > 0 and steps.value else math.inf
        other = wider * abs(math.log(of_step / step.value)) if of_step > 0 else math.inf
        return one + other if bounds else math.hypot(one, other)

    value = steps.value * step.value
    low = apart(steps.low or 0.0, step.low)
    high = apart(math.inf if steps.high is None else steps.high, step.high)
    return estimate(value, value * math.exp(-low), value * math.exp(high))


def _quantile(confidence: float) -> float:
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def usual_batches(base: float, critical: float | None, most: int) -> list[int]:
    """Powers of two times the base batch, up to four times the critical batch, or 64 times the base where that is not
    known; at most `most`."""
    limit = min(float(most), 4 * critical if critical is not None and math.isfinite(critical) else 64 * base)
    found = [round(base)]
    while 2 * found[-1] <= limit and len(found) < 12:
        found.append(2 * found[-1])
    return found
