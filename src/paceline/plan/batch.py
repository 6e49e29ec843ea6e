"""The table of batch and workers: steps, time and efficiency of each."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from paceline.plan.refits import Predictor
from paceline.plan.steps import Steps
from paceline.records.plan_results import BatchRow
from paceline.stats.intervals import Interval, quantile

CONFIDENCE = 0.9
"""Of every interval in the table."""


def table(
    steps: Steps,
    times: Predictor | None,
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


def _row(steps: Steps, times: Predictor | None, batch: int, workers: int, missed: bool) -> BatchRow:
    taken = steps.at(batch)
    progress = steps.efficiency(batch)
    rate, system, time = None, None, None
    if times is not None:
        setting = times.model.cut(workers, batch)
        rate = times.model.samples_per_s(setting)
        # Beside one worker at the base batch, not at its share of this one: with a small share, steps that take as long
        # to launch as to compute would make that one slow, and further workers seem to cost nothing.
        system = rate / (workers * times.model.samples_per_s(times.model.cut(1, steps.base)))
        time = _time(taken, times.step(setting), times.confidence, bounds=steps.hyperbola is None)
    return BatchRow(
        batch=batch,
        workers=workers,
        steps=taken.estimate,
        samples=batch * taken.value,
        samples_per_s=rate,
        time_s=time.estimate if time else None,
        system=system,
        statistical=progress.value,
        statistical_interval=progress.estimate,
        missed=missed,
    )


def _time(steps: Interval, step: Interval, confidence: float, *, bounds: bool) -> Interval:
    """Steps times seconds of a step, with both intervals, at `CONFIDENCE`. They are independent, so that their relative
    deviations add up in squares; where the ends of steps are bounds, and no interval, they simply add up."""
    wider = quantile(CONFIDENCE) / quantile(confidence)

    def apart(of_steps: float, of_step: float) -> float:
        """By how much both ends together lie from the value, in the logarithm."""
        one = abs(math.log(of_steps / steps.value)) if of_steps > 0 and steps.value else math.inf
        other = wider * abs(math.log(of_step / step.value)) if of_step > 0 else math.inf
        return one + other if bounds else math.hypot(one, other)

    value = steps.value * step.value
    low, high = apart(steps.low, step.low), apart(steps.high, step.high)
    return Interval(value, value * math.exp(-low), value * math.exp(high))


_ROUNDING = 1 + 1e-6
"""A fitted critical batch of 256 may be 255.9999: the last digits depend on the processor."""


def usual_batches(base: float, critical: float | None, most: int) -> list[int]:
    """Powers of two times the base batch, up to four times the critical batch, or 64 times the base where that is not
    known; at most `most`."""
    limit = min(float(most), 4 * critical if critical is not None and math.isfinite(critical) else 64 * base)
    found = [round(base)]
    while 2 * found[-1] <= limit * _ROUNDING and len(found) < 12:
        found.append(2 * found[-1])
    return found
