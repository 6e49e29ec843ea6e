"""A regression whose gradient noise scale is known: inputs of unit covariance in ten dimensions, noise of deviation 1.

The weights are one unit away from the truth, so tr(Sigma) = 21 and |G|^2 = 1: the noise scale is 21 samples. At a rate
of 0 it stays so.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor, nn

from paceline.tasks.task import Arrays, Loss, Task

SAMPLES, DIMENSIONS = 160_000, 10


class Away(nn.Module):
    """A linear model one unit away from the truth, which is 0."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.eye(DIMENSIONS)[0])

    def forward(self, x: Tensor) -> Tensor:
        """(n, 10) -> (n,)."""
        return x @ self.weights


def half_squared_error(model: nn.Module, batch: Any) -> Loss:
    """Sum over the batch."""
    x, y = batch
    return Loss(0.5 * ((model(x) - y) ** 2).sum(), len(y), None)


def task() -> Task:
    """The task; PACELINE_REGRESSION_SEED draws other samples."""
    generator = torch.Generator().manual_seed(int(os.environ.get("PACELINE_REGRESSION_SEED", "0")))
    x = torch.randn(SAMPLES, DIMENSIONS, generator=generator)
    y = torch.randn(SAMPLES, generator=generator)
    return Task("regression", Away, half_squared_error, Arrays(x, y), Arrays(x[:8], y[:8]), count="samples")
