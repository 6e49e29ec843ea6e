"""Small tasks whose curvature can be computed in another way."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from paceline.tasks.classify import cross_entropy
from paceline.tasks.task import Arrays, Loss, Task, accuracy


class ConvNet(nn.Module):
    """Convolution, batch norm, and a head, smooth so that finite differences hold; takes (n, 2, 3, 3)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.dense = nn.Linear(27, 6)
        self.norm1 = nn.BatchNorm1d(6, affine=False)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(6, 4)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (n, 4)."""
        hidden = torch.tanh(self.norm(self.conv(images))).flatten(1)
        return self.head(self.drop(torch.tanh(self.norm1(self.dense(hidden)))))


def images(samples: int, dtype: torch.dtype = torch.float64) -> Arrays:
    """(n, 2, 3, 3) and labels."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(samples, 2, 3, 3, generator=generator, dtype=torch.float64).to(dtype)
    return Arrays(x, torch.randint(4, (samples,), generator=generator))


def conv_task(samples: int = 60) -> Task:
    """A task on `images` with smoothing that only training must see."""
    data = images(samples)
    return Task("conv", ConvNet, cross_entropy(0.3), data, data, metrics={"accuracy": accuracy}, count="samples")


def conv_model(dtype: torch.dtype = torch.float64, *, channels_last: bool = False) -> ConvNet:
    """With weights, affine parameters and running statistics that are not the initial ones."""
    torch.manual_seed(1)
    model = ConvNet().to(dtype)
    with torch.no_grad():
        for norm in (model.norm, model.norm1):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2.0)
        model.norm.weight.uniform_(0.5, 2.0)
        model.norm.bias.normal_()
    return model.to(memory_format=torch.channels_last) if channels_last else model


class Weights(nn.Module):
    """A model that is nothing but a vector of weights."""

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.w = nn.Parameter(values.clone())

    def forward(self, _: Any) -> Tensor:
        """The vector."""
        return self.w


def quadratic(matrix: Tensor, samples: int = 10) -> tuple[Task, Weights]:
    """L(w) = w^T A w / 2, as a sum over samples that each have their share (i + 1) of it and so many counts."""
    shares = torch.arange(1.0, samples + 1, dtype=matrix.dtype)

    def loss(model: nn.Module, batch: tuple[Tensor]) -> Loss:
        w = model(None)
        return Loss(0.5 * batch[0].sum() * (w @ matrix @ w), batch[0].sum())

    data = Arrays(shares)
    start = torch.arange(1.0, len(matrix) + 1, dtype=matrix.dtype)
    return Task("quadratic", lambda: Weights(start), loss, data, data), Weights(start)
