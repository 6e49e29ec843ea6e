"""Optimizers: what decays, and steps worked out by hand in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from paceline.tasks.models.cnn import FashionCNN
from paceline.train.optim.build import build_optimizer, parameter_groups, sgd
from paceline.train.optim.table import OPTIMIZERS, Settings


def test_biases_and_norms_do_not_decay_and_all_else_does() -> None:
    """By name in a network with convolutions, norms and linear layers; each parameter stands in one group."""
    model = FashionCNN()
    names = {id(p): name for name, p in model.named_parameters()}

    groups = parameter_groups(model, 0.3)

    found = {names[id(p)]: group["weight_decay"] for group in groups for p in group["params"]}
    assert found == {
        "features.0.weight": 0.3,
        "features.1.weight": 0.0,
        "features.1.bias": 0.0,
        "features.4.weight": 0.3,
        "features.5.weight": 0.0,
        "features.5.bias": 0.0,
        "head.1.weight": 0.3,
        "head.1.bias": 0.0,
        "head.3.weight": 0.3,
        "head.3.bias": 0.0,
    }
    assert sum(len(group["params"]) for group in groups) == len(found)


def test_frozen_parameters_are_in_their_groups_and_empty_groups_are_left_out() -> None:
    """A model may unfreeze them later; one of a matrix has one group."""
    model = nn.Linear(2, 3)
    model.bias.requires_grad_(False)

    kept, adapted = parameter_groups(model, 0.1)[::-1]

    assert [p is model.weight for p in adapted["params"]] == [True]
    assert [p is model.bias for p in kept["params"]] == [True]
    assert len(parameter_groups(nn.Linear(2, 3, bias=False), 0.1)) == 1


class One(nn.Module):
    """A matrix and a bias with gradients that are set by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=torch.float64))
        self.bias = nn.Parameter(torch.tensor([0.25, -0.75], dtype=torch.float64))


GRADIENTS = [0.3, -0.7, 0.2, 0.05]


def run(name: str, settings: Settings) -> dict[str, np.ndarray]:
    """Four steps with gradients g + parameter index."""
    model = One()
    optimizer = build_optimizer(name, model, settings)
    for number in GRADIENTS:
        model.matrix.grad = torch.full((2, 2), number, dtype=torch.float64)
        model.bias.grad = torch.full((2,), 2 * number, dtype=torch.float64)
        optimizer.step()
    return {"matrix": model.matrix.detach().numpy(), "bias": model.bias.detach().numpy()}


def sgd_by_hand(start: np.ndarray, factor: float, settings: Settings, decay: float) -> np.ndarray:
    """buffer = momentum * buffer + g + decay * w; w -= lr * (buffer, or g + momentum * buffer for Nesterov)."""
    w, buffer = start.copy(), np.zeros_like(start)
    for number in GRADIENTS:
        g = factor * number + decay * w
        buffer = settings.momentum * buffer + g
        w = w - settings.lr * (g + settings.momentum * buffer if settings.nesterov else buffer)
    return w


def adamw_by_hand(start: np.ndarray, factor: float, settings: Settings, decay: float) -> np.ndarray:
    """Loshchilov and Hutter: w shrinks by lr * decay, then moves by the bias-corrected ratio of moments."""
    w, first, second = start.copy(), np.zeros_like(start), np.zeros_like(start)
    for t, number in enumerate(GRADIENTS, start=1):
        g = factor * number
        w = w * (1 - settings.lr * decay)
        first = 0.9 * first + 0.1 * g
        second = 0.999 * second + 0.001 * g * g
        corrected = first / (1 - 0.9**t) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
        w = w - settings.lr * corrected
    return w


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("sgd", Settings(lr=0.1)),
        ("sgd", Settings(lr=0.1, momentum=0.9, weight_decay=0.2)),
        ("sgd", Settings(lr=0.05, momentum=0.5, nesterov=True, weight_decay=0.01)),
        ("adamw", Settings(lr=0.01)),
        ("adamw", Settings(lr=0.02, weight_decay=0.5)),
    ],
)
def test_fused_steps_equal_those_worked_out_by_hand(name: str, settings: Settings) -> None:
    """In float64, four steps, with decay on the matrix only."""
    by_hand = {"sgd": sgd_by_hand, "adamw": adamw_by_hand}[name]
    start = One()

    found = run(name, settings)

    matrix = by_hand(start.matrix.detach().numpy(), 1.0, settings, settings.weight_decay)
    bias = by_hand(start.bias.detach().numpy(), 2.0, settings, 0.0)
    np.testing.assert_allclose(found["matrix"], matrix, rtol=1e-14)
    np.testing.assert_allclose(found["bias"], bias, rtol=1e-14)
    assert not math.isclose(found["matrix"][0, 0], 1.0)


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_every_optimizer_of_the_table_is_built_with_its_rate(name: str) -> None:
    """A name that flags accept can be built; torch's own are fused."""
    optimizer = build_optimizer(name, nn.Linear(2, 2), Settings(lr=0.123))

    assert [group["lr"] for group in optimizer.param_groups] == [0.123, 0.123]
    assert name not in ("sgd", "adamw") or all(group["fused"] for group in optimizer.param_groups)


def test_norms_over_several_dimensions_and_wide_biases_do_not_decay_either() -> None:
    """What belongs to a norm or is called bias is kept, whatever its shape; filters and matrices decay."""

    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(1, 2, 3)
            self.norm = nn.LayerNorm((4, 5))
            self.bias = nn.Parameter(torch.zeros(1, 7))
            self.weight = nn.Parameter(torch.zeros(6, 7))

    model = Wide()

    decayed, kept = parameter_groups(model, 0.1)

    assert {id(p) for p in decayed["params"]} == {id(model.conv.weight), id(model.weight)}
    assert {id(p) for p in kept["params"]} == {
        id(p) for p in (model.conv.bias, model.norm.weight, model.norm.bias, model.bias)
    }


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_is_torchs_where_gradients_are_missing_late_or_sparse(nesterov: bool) -> None:
    """Three parameters whose gradients come and go by chance, one of them with sparse ones, over 30 steps."""
    generator = torch.Generator().manual_seed(3)
    ours = [nn.Parameter(torch.randn(5, 2, generator=generator, dtype=torch.float64)) for _ in range(3)]
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    settings = Settings(lr=0.1, momentum=0.9, nesterov=nesterov)
    first = sgd([{"params": ours[:2], "weight_decay": 0.01}, {"params": ours[2:], "weight_decay": 0.0}], settings)
    groups = [{"params": theirs[:2], "weight_decay": 0.01}, {"params": theirs[2:]}]
    second = torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=nesterov, foreach=False)

    for _ in range(30):
        for index, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            a.grad = b.grad = None
            if torch.rand((), generator=generator) < 0.5:
                gradient = torch.randn(5, 2, generator=generator, dtype=torch.float64)
                rows = gradient * (torch.rand(5, 1, generator=generator) < 0.5)
                a.grad, b.grad = (rows.to_sparse(1) if index == 2 else gradient.clone() for _ in range(2))
        first.step()
        second.step()

    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-13)
    assert all(group["fused"] for group in first.param_groups)
