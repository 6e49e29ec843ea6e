"""`linear`: y = w x + b with noise. The best fit has a closed form, so convergence can be checked to the digit."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from paceline.tasks.table import BUILT_IN, TaskOptions
from paceline.tasks.task import Arrays, Loss, Task

TRUE_SLOPE, TRUE_INTERCEPT, NOISE = 2.0, -1.0, 0.5
TRAIN_SAMPLES, EVAL_SAMPLES = 1000, 1000


def points(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """x uniform in [-1, 1] and noisy y, each (samples, 1) float64."""
    generator = np.random.Generator(np.random.Philox(seed))
    x = generator.uniform(-1.0, 1.0, (samples, 1))
    y = TRUE_SLOPE * x + TRUE_INTERCEPT + NOISE * generator.standard_normal((samples, 1))
    return x, y


def best_fit(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """Slope, intercept and mean half squared error of the least-squares line."""
    design = np.column_stack([x[:, 0], np.ones(len(x))])
    (slope, intercept), *_ = np.linalg.lstsq(design, y[:, 0], rcond=None)
    residual = y[:, 0] - design @ np.array([slope, intercept])
    return float(slope), float(intercept), float(0.5 * np.mean(residual**2))


def half_squared_error(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Loss:
    """Sum over the batch of (prediction - y)^2 / 2."""
    x, y = batch
    predicted = model(x)
    return Loss(0.5 * (predicted - y).square().sum(), len(x), predicted)


def build(options: TaskOptions) -> Task:
    """The task."""
    del options

    def model() -> nn.Module:
        return nn.Linear(1, 1)

    def data(samples: int, seed: int) -> Any:
        return Arrays(*(torch.from_numpy(column) for column in points(samples, seed)))

    return Task(
        name="linear",
        model=model,
        loss=half_squared_error,
        train_data=data(TRAIN_SAMPLES, seed=1),
        eval_data=data(EVAL_SAMPLES, seed=2),
        count="samples",
        defaults=BUILT_IN["linear"].defaults,
        data_source="made from a fixed seed",
    )
