"""A task whose computing is sleeping: eight layers with real parameters, whose gradients are really summed.

More ranks than cores can so be timed: a rank that sleeps takes no core, DDP's buckets become ready one after another,
as in a real backward pass, and their sums hide behind the sleep of the layers below. All ranks of the machine share
what gloo computes, and what each does besides sleeping: a few milliseconds a step of autograd and update, for which
ranks beyond the cores take turns.

    PACELINE_EMULATED="fixed_ms,sample_ms,parameters"    of forward and backward together; default 8,0.5,1000000
"""

from __future__ import annotations

import os
import time
from typing import Any

import torch
from torch import Tensor, nn

from paceline.tasks.task import Arrays, Loss, Task

LAYERS = 8


class Sleep(torch.autograd.Function):
    """Identity that takes a while, a third of it forward; the gradient of its parameters is their own size."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, seconds: float) -> Tensor:
        """Sleep a third."""
        ctx.seconds = seconds
        ctx.save_for_backward(weights)
        time.sleep(seconds / 3)
        return x + 0.0

    @staticmethod
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor, Tensor, None]:
        """Sleep two thirds."""
        (weights,) = ctx.saved_tensors
        time.sleep(2 * ctx.seconds / 3)
        return above, torch.full_like(weights, 1e-3), None


class Emulated(nn.Module):
    """Layers that sleep.

    Args:
        fixed_s, sample_s: of forward and backward of a micro-batch, and of each sample of it.
        parameters: in all.
    """

    def __init__(self, fixed_s: float, sample_s: float, parameters: int) -> None:
        super().__init__()
        self.fixed_s, self.sample_s = fixed_s, sample_s
        self.layers = nn.ParameterList(nn.Parameter(torch.zeros(parameters // LAYERS)) for _ in range(LAYERS))

    def forward(self, x: Tensor) -> Tensor:
        """(n, 1) -> (n, 1)."""
        each = (self.fixed_s + self.sample_s * len(x)) / LAYERS
        for weights in self.layers:
            x = Sleep.apply(x, weights, each)
        return x


def loss(model: nn.Module, batch: Any) -> Loss:
    """The sum of the outputs."""
    (x,) = batch
    x = x.clone().requires_grad_()  # autograd must go through every layer
    return Loss(model(x).sum(), len(x), None)


def task() -> Task:
    """The task; eval data are few, since evaluating sleeps too."""
    fixed_ms, sample_ms, parameters = os.environ.get("PACELINE_EMULATED", "8,0.5,1000000").split(",")
    data = torch.zeros(200_000, 1)
    return Task(
        "emulated",
        lambda: Emulated(float(fixed_ms) / 1e3, float(sample_ms) / 1e3, int(parameters)),
        loss,
        Arrays(data),
        Arrays(data[:8]),
        count="samples",
    )
