"""The table of batch and workers: steps, time and efficiency of each."""

from __future__ import annotations

import math
from collections.abc import Sequence

from paceline.plan.step_time import Setting, StepTime
from paceline.plan.steps import Steps
from paceline.records.plan import BatchRow, Estimate


def table(steps: Steps, speed: StepTime | None, batches: Sequence[int], workers: Sequence[int]) -> list[BatchRow]:
    """Every batch with every number of workers that can share it out.

    Args:
        steps: to the target.
        speed: of a step; None leaves times out.
        batches: samples a step, ascending.
        workers: ascending.
    """
    rows = []
    for batch in batches:
        for count in workers:
            if batch < count:
                continue
            taken = steps.at(batch)
            assert taken.value is not None, "any batch gets there"
            setting = Setting(count, batch / count)
            step_s = speed.step_s(setting) if speed is not None else None
            system = None
            if speed is not None:
                alone = Setting(1, batch / count)
                system = speed.samples_per_s(setting) / (count * speed.samples_per_s(alone))
            rows.append(
                BatchRow(
                    batch=batch,
                    workers=count,
                    steps=taken,
                    samples=batch * taken.value,
                    samples_per_s=batch / step_s if step_s else None,
                    time_s=_times(taken, step_s) if step_s else None,
                    system=system,
                    statistical=steps.efficiency(batch),
                )
            )
    return rows


def _times(of: Estimate, factor: float) -> Estimate:
    return Estimate(
        value=None if of.value is None else of.value * factor,
        low=None if of.low is None else of.low * factor,
        high=None if of.high is None else of.high * factor,
    )


def usual_batches(base: float, critical: float | None, most: int) -> list[int]:
    """Powers of two times the base batch, up to four times the critical batch, or 64 times the base where that is not
    known; at most `most`."""
    limit = min(float(most), 4 * critical if critical is not None and math.isfinite(critical) else 64 * base)
    found = [round(base)]
    while 2 * found[-1] <= limit and len(found) < 12:
        found.append(2 * found[-1])
    return found
