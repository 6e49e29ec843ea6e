"""The gradient noise scale along a run, at the places where the figures can draw it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from paceline.records.gradients import read_gradient_norms
from paceline.records.rundir import RunDir
from paceline.records.schema import RunInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paceline.report.thin import Steps

    Column = NDArray[np.float64]


@dataclass(frozen=True)
class Noise:
    """The noise scale in windows of the run, each column of shape (n,).

    Attributes:
        step, samples, elapsed_s: the window's last.
        first: the window's first step.
        value, low, high: of the noise scale, in samples; infinite where it has no end.
        recorded: steps of the window whose norms were recorded.
        batch: samples of its last recorded step.
        data: samples in the training set; a noise scale as large as that is no number.
        confidence: of the interval.
    """

    first: Column
    step: Column
    samples: Column
    elapsed_s: Column
    value: Column
    low: Column
    high: Column
    recorded: Column
    batch: Column
    data: int | None
    confidence: float


def noise_of(run: RunDir, info: RunInfo, steps: Steps) -> Noise | None:
    """Of a run whose ranks recorded gradient norms; None where there are too few.

    Reading passes over all other events without looking into them.
    """
    rows = read_gradient_norms(run)
    if not rows:
        return None
    from paceline.stats.noise_scale import estimates, over_training  # takes scipy: only where it is needed

    numbers, noise, signal = estimates(rows)
    batches = {row.step: sum(row.samples) for row in rows}
    data = info.task.train_samples if info.task else None
    windows = over_training(numbers, noise, signal, samples=data)
    if not windows:
        return None
    last = np.array([window.last for window in windows], dtype=np.float64)
    found = [window.found for window in windows]
    return Noise(
        first=np.array([window.first for window in windows], dtype=np.float64),
        step=last,
        samples=np.interp(last, steps.step, steps.samples) if len(steps.step) else np.full(len(last), np.nan),
        elapsed_s=np.interp(last, steps.step, steps.elapsed_s) if len(steps.step) else np.full(len(last), np.nan),
        value=np.array([each.value for each in found]),
        low=np.array([each.low for each in found]),
        high=np.array([each.high for each in found]),
        recorded=np.array([each.steps for each in found], dtype=np.float64),
        batch=np.array([batches[window.last] for window in windows], dtype=np.float64),
        data=data,
        confidence=found[0].confidence,
    )
