"""Counted computing equals the closed forms, and counting leaves no trace."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from paceline.studies.flops import count_forward, forward_flop
from paceline.tasks.classify import cross_entropy
from paceline.tasks.data.arrays import Arrays
from paceline.tasks.linear import build as linear
from paceline.tasks.models.cnn import FashionCNN
from paceline.tasks.table import TaskOptions
from paceline.tasks.task import Loss, Task


def total(model: nn.Module, batch: Tensor) -> Loss:
    """A loss without products of its own."""
    output = model(batch)
    return Loss((output[0] if isinstance(output, tuple) else output).sum(), len(batch))


@pytest.mark.parametrize(
    ("model", "shape", "flop"),
    [
        (nn.Linear(7, 5), (3, 7), 3 * 2 * 7 * 5),
        (nn.Linear(7, 5), (3, 4, 7), 3 * 4 * 2 * 7 * 5),
        (nn.Conv2d(3, 8, 5, padding=2), (2, 3, 6, 9), 2 * 2 * 5**2 * 3 * 8 * 6 * 9),
        (nn.Conv2d(3, 8, 3, stride=2), (2, 3, 9, 9), 2 * 2 * 3**2 * 3 * 8 * 4 * 4),
        (nn.Conv2d(6, 6, 3, padding=1, groups=3), (1, 6, 5, 5), 2 * 3**2 * (6 // 3) * 6 * 5 * 5),
        (nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.BatchNorm1d(4), nn.LayerNorm(4)), (2, 4), 2 * 2 * 4 * 4),
        (nn.LSTM(5, 7, batch_first=True), (3, 4, 5), 3 * 4 * 2 * (5 + 7) * 4 * 7),
        # Projections in and out, two layers of the feed-forward part, and for each of 2 heads scores and mixing.
        (
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
            (3, 4, 8),
            3 * 4 * 2 * (3 * 8 * 8 + 8 * 8 + 2 * 8 * 16) + 3 * 2 * 2 * (2 * 4 * 4 * 4),
        ),
    ],
    ids=["linear", "linear of a sequence", "convolution", "strided", "grouped", "norms", "lstm", "transformer"],
)
def test_a_layer_is_counted_as_its_closed_form(model: nn.Module, shape: tuple[int, ...], flop: int) -> None:
    """A multiply-add is 2 FLOP; what is done number by number is left out."""
    assert count_forward(model, total, torch.randn(shape)) == flop


def task_of(model: object, data: Arrays) -> Task:
    """A classifier on `data`."""
    return Task("t", model, cross_entropy(), data, data)


def test_the_small_cnn_is_the_sum_of_its_layers() -> None:
    """Two convolutions on 28 x 28 and 14 x 14, two linear layers: by hand, for one sample, from a batch of any size."""
    by_hand = 2 * (9 * 1 * 32 * 28 * 28 + 9 * 32 * 64 * 14 * 14 + 3136 * 128 + 128 * 10)

    for samples in (3, 20):
        data = Arrays(torch.zeros(samples, 1, 28, 28), torch.zeros(samples, dtype=torch.int64))

        assert forward_flop(task_of(FashionCNN, data)) == by_hand == 8_482_304


def test_the_task_linear_is_one_product() -> None:
    """y = w x + b: 2 FLOP, the bias not counted."""
    assert forward_flop(linear(TaskOptions())) == 2


class Strange(nn.Module):
    """Draws, keeps a buffer and looks at its mode."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.dropout = nn.Dropout(0.5)
        self.register_buffer("calls", torch.zeros(1))
        self.modes: list[bool] = []

    def forward(self, batch: Tensor) -> Tensor:
        """Everything that may leave a trace."""
        self.calls += 1
        self.modes.append(self.training)
        random.random()
        np.random.rand()
        return self.layer(self.dropout(batch + torch.rand(1)))


def test_counting_leaves_no_trace() -> None:
    """Mode, gradients, buffers, weights, the state of every generator and torch's switches are as they were."""
    model = Strange().train()
    model.layer.weight.grad = torch.ones(2, 2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    drawn = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    switches = torch.backends.mha.get_fastpath_enabled(), torch.backends.mkldnn.enabled

    count_forward(model, total, torch.zeros(3, 2))

    assert model.modes == [False]  # as in an evaluation
    assert model.training
    assert torch.equal(model.layer.weight.grad, torch.ones(2, 2))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), drawn[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == drawn[1:]
    assert (torch.backends.mha.get_fastpath_enabled(), torch.backends.mkldnn.enabled) == switches


def test_building_the_model_leaves_the_random_state() -> None:
    """A training that starts afterwards has the weights that it would have had."""
    data = Arrays(torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64))
    before = torch.get_rng_state()

    forward_flop(task_of(lambda: nn.Linear(2, 3), data))

    assert torch.equal(torch.get_rng_state(), before)


class Unfollowed(nn.Module):
    """Fails when it is looked at."""

    def forward(self, batch: Tensor) -> Tensor:
        """As an operation without a form on the CPU does."""
        raise NotImplementedError("only on CUDA")


def test_a_model_that_cannot_be_followed_has_no_count() -> None:
    """A plan goes on without one."""
    data = Arrays(torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64))

    assert forward_flop(task_of(Unfollowed, data)) is None
