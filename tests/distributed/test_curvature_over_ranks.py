"""Curvature does not depend on the number of workers: the same bits on 1, 2 and 3 ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from paceline.curvature import fixed_loss
from paceline.curvature.density import quadrature
from paceline.curvature.fixed_loss import FixedLoss
from paceline.curvature.lanczos import Wanted, eigenpairs
from paceline.curvature.operator import Space
from paceline.curvature.trace import trace_sample
from paceline.pool.warm_ranks import run_ranks
from paceline.records.errors import PacelineError
from paceline.tasks.classify import cross_entropy
from paceline.tasks.data.arrays import Like
from paceline.tasks.task import Arrays, Loss, Task
from tests.curvature.models import ConvNet, conv_model, conv_task, images


def built(dtype: str, samples: int, chunk: int, pieces: int) -> FixedLoss:
    """On some of 60 images, with channels last in float32."""
    kind = getattr(torch, dtype)
    last = dtype == "float32"
    like = Like(torch.device("cpu"), kind, channels_last=last)
    model = conv_model(kind, channels_last=last)
    fixed_loss._PIECES = pieces
    return FixedLoss(conv_task(), model, images(60, kind), like, samples=samples, chunk=chunk)


def measured(dtype: str, samples: int, chunk: int, pieces: int) -> dict[str, Any]:
    """Everything that can be measured at one point, as bytes and numbers."""
    loss = built(dtype, samples, chunk, pieces)
    generator = torch.Generator().manual_seed(2)
    point = loss.point() + 0.1 * torch.randn(loss.size, generator=generator, dtype=loss.point().dtype)
    space = Space.of(point)

    def apply(vector: torch.Tensor) -> torch.Tensor:
        return loss.hvp(point, vector)

    value, (mean, slope) = loss.value(point), loss.gradient(point)
    pairs = eigenpairs(apply, space, Wanted(2, max_steps=12))
    nodes = quadrature(apply, space, steps=4, seed=0, number=0)
    return {
        "value": (value.loss, value.metrics, mean),
        "alone": loss.value_alone(point) == value,
        "gradient": slope.numpy().tobytes(),
        "product": apply(slope).numpy().tobytes(),
        "eigenvalues": [pair.value for pair in pairs.largest],
        "trace": [trace_sample(apply, space, 0, number) for number in range(8)],
        "density": nodes.nodes.tolist() + nodes.weights.tolist(),
    }


@pytest.mark.parametrize("pieces", [48, 4])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_1_2_and_3_ranks_measure_the_same_bits(dtype: str, pieces: int) -> None:
    """Value, gradient, product, eigenvalues, trace and density, on every rank, uneven parts included."""
    one = run_ranks(measured, 1, dtype, 53, 8, pieces)[0]

    assert one["alone"]
    for world in (2, 3):
        for other in run_ranks(measured, world, dtype, 53, 8, pieces):
            assert other == one


def test_more_ranks_than_chunks_measure_the_same() -> None:
    """Two chunks on three ranks: one has nothing to do."""
    one = run_ranks(measured, 1, "float64", 20, 10, 48)[0]

    assert run_ranks(measured, 3, "float64", 20, 10, 48) == [one] * 3


def test_the_ranks_share_the_work() -> None:
    """Each computes its own chunks and no other."""
    assert run_ranks(chunks_seen, 3) == [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]


def chunks_seen() -> list[float]:
    """The first number of each chunk that this rank computed a gradient of."""
    seen: list[float] = []

    def loss(model: torch.nn.Module, batch: Any) -> Loss:
        seen.append(float(batch[0][0, 0]))
        return Loss(model(batch[0]).square().sum(), len(batch[0]))

    data = Arrays(torch.arange(10.0)[:, None])
    task = Task("seen", lambda: torch.nn.Linear(1, 1), loss, data, data)
    like = Like(torch.device("cpu"), torch.float32, channels_last=False)
    fixed = FixedLoss(task, torch.nn.Linear(1, 1), data, like, samples=10, chunk=1)
    fixed.gradient(fixed.point())
    return seen


def one_fails() -> str:
    """The last rank's loss cannot be computed."""

    def loss(model: torch.nn.Module, batch: Any) -> Loss:
        if dist.get_rank() == dist.get_world_size() - 1:
            raise PacelineError("this rank cannot")
        return cross_entropy()(model, batch)

    task = Task("fails", ConvNet, loss, images(60), images(60))
    like = Like(torch.device("cpu"), torch.float64, channels_last=False)
    fixed = FixedLoss(task, conv_model(), images(60), like, samples=60, chunk=10)
    try:
        fixed.value(fixed.point())
    except PacelineError as error:
        return error.what
    return "a value"


def test_a_rank_that_fails_is_no_rank_that_others_wait_for() -> None:
    """All raise, and all say why."""
    results = run_ranks(one_fails, 3, timeout_s=60)

    assert results == ["this rank cannot"] * 3


def test_the_measured_numbers_are_those_of_a_plain_loop() -> None:
    """The bits above could all be wrong alike: the loss of a loop over chunks, the gradient of its mean."""
    one = run_ranks(measured, 2, "float64", 53, 8, 48)[0]
    loss = built("float64", 53, 8, 48)
    generator = torch.Generator().manual_seed(2)
    point = loss.point() + 0.1 * torch.randn(loss.size, generator=generator, dtype=torch.float64)
    model = conv_model()
    torch.nn.utils.vector_to_parameters(point, model.parameters())
    for module in model.modules():
        module.training = isinstance(module, torch.nn.modules.batchnorm._BatchNorm)
    x, labels = images(60).columns
    total = torch.zeros((), dtype=torch.float64)
    for index in range(7):
        rows = slice(*((8 * index, 8 * index + 8) if index < 4 else (32 + 7 * (index - 4), 39 + 7 * (index - 4))))
        total = total + torch.nn.functional.cross_entropy(model(x[rows]), labels[rows], reduction="sum")
    (total / 53).backward()

    slope = torch.nn.utils.parameters_to_vector([p.grad for p in model.parameters()])

    assert one["value"][0] == pytest.approx(float(total.detach()) / 53, rel=1e-13)
    np.testing.assert_allclose(np.frombuffer(one["gradient"]), slope.numpy(), rtol=1e-10, atol=1e-13)
