"""The edge of stability: limits in closed form, and sharpness that hovers there."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.autograd.function import once_differentiable

from paceline.pool.warm_ranks import run_ranks
from paceline.records.errors import PacelineError
from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir
from paceline.records.schema import Evaluation
from paceline.tasks.data.arrays import Arrays, Like
from paceline.tasks.table import Defaults
from paceline.tasks.task import Loss, Task
from paceline.train.config import TrainConfig
from paceline.train.monitor import Monitor, stability_limit
from paceline.train.optim.table import Settings
from paceline.train.resolve import resolve
from tests.distributed.jobs import trained


def largest_growth(h: float, lr: float, momentum: float, *, nesterov: bool) -> float:
    """The spectral radius of the recursion of torch's SGD on h w^2 / 2, worked out as a matrix on (w, buffer)."""
    buffer = np.array([h, momentum])  # buffer' = h w + momentum buffer
    step = np.array([h, 0.0]) + momentum * buffer if nesterov else buffer
    matrix = np.array([np.array([1.0, 0.0]) - lr * step, buffer])
    return float(np.abs(np.linalg.eigvals(matrix)).max())


@given(lr=st.floats(1e-3, 10), momentum=st.floats(0, 0.98), nesterov=st.booleans())
def test_steps_shrink_below_the_limit_and_grow_above_it(lr: float, momentum: float, nesterov: bool) -> None:
    """The eigenvalues of the recursion pass 1 there."""
    limit = stability_limit(lr, momentum, nesterov=nesterov)

    assert largest_growth(0.999 * limit, lr, momentum, nesterov=nesterov) < 1
    assert largest_growth(1.001 * limit, lr, momentum, nesterov=nesterov) > 1


def test_limits_are_those_computed_elsewhere() -> None:
    """At a rate of 1: 2, 3.8 for a heavy ball of 0.9, 1.357142857 for Nesterov's."""
    assert stability_limit(1.0) == 2
    assert stability_limit(1.0, 0.9) == pytest.approx(3.8)
    assert stability_limit(1.0, 0.9, nesterov=True) == pytest.approx(1.357142857, abs=1e-9)
    assert stability_limit(0.0) == math.inf


def test_the_monitor_is_refused_where_no_limit_is_known() -> None:
    """With what to do instead."""
    with pytest.raises(PacelineError, match="--monitor sharpness does not know what adamw bears") as caught:
        resolve(TrainConfig("t", monitor="sharpness", optimizer="adamw"), Defaults())

    assert "paceline landscape" in caught.value.hint


def tanh_task() -> Task:
    """A tanh network 20-64-64-5 on 256 points, mean squared error."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(256, 20, generator=generator)
    y = torch.nn.functional.one_hot(torch.randint(5, (256,), generator=generator), 5).float()

    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 5))

    def loss(model: nn.Module, batch: Any) -> Loss:
        return Loss(((model(batch[0]) - batch[1]) ** 2).mean(dim=1).sum(), len(batch[0]))

    return Task("tanh", model, loss, Arrays(x, y), Arrays(x[:9], y[:9]), count="samples")


def full_batch(base: str, lr: float, momentum: float, steps: int, monitor: str = "sharpness") -> dict[str, Any]:
    """Gradient descent on all 256 points; runs on a rank. Ratios of the last ten measurements, and the weights."""
    flags = {
        "task": "tanh",
        "global_batch": 256,
        "steps": steps,
        "lr": lr,
        "momentum": momentum,
        "schedule": "constant",
        "precision": "fp32",
        "eval_every": "20",
        "checkpoint_every": "100000",
        "monitor": monitor,
        "monitor_samples": 256,
    }
    done = trained(flags, tanh_task(), base)
    rows = [e for e in EventStream(RunDir(Path(base)).events(0)) if isinstance(e, Evaluation)]
    pairs = [
        (e.metrics["sharpness"].value, e.metrics["stability_limit"].value) for e in rows if "sharpness" in e.metrics
    ]
    return {"ratios": [value / limit for value, limit in pairs], "weights": done["parameters"]}


@pytest.mark.parametrize(
    ("lr", "momentum"),
    [
        pytest.param(0.4, 0.0, marks=pytest.mark.slow),
        pytest.param(0.8, 0.0, marks=pytest.mark.slow),
        (0.6, 0.5),
    ],
)
def test_full_batch_training_rises_to_the_edge_and_hovers_there(lr: float, momentum: float, tmp_path: Path) -> None:
    """After 1,200 steps the last ten measurements are within 5 % of the limit, from well below it at first."""
    (found,) = run_ranks(full_batch, 1, str(tmp_path), lr, momentum, 1200, timeout_s=200)

    late = float(np.mean(found["ratios"][-10:]))
    assert found["ratios"][0] < 0.9
    assert (0.95 if momentum else 0.97) <= late <= 1.05


def test_the_monitor_changes_nothing_and_every_rank_count_measures_the_same(tmp_path: Path) -> None:
    """Weights to the bit with and without it; sharpness on 1 and 2 ranks to rounding."""
    with_it = run_ranks(full_batch, 2, str(tmp_path / "a"), 0.4, 0.0, 60, timeout_s=100)
    without = run_ranks(full_batch, 2, str(tmp_path / "b"), 0.4, 0.0, 60, "none", timeout_s=100)
    (alone,) = run_ranks(full_batch, 1, str(tmp_path / "c"), 0.4, 0.0, 60, timeout_s=100)

    for a, b in zip(with_it[0]["weights"], without[0]["weights"], strict=True):
        np.testing.assert_array_equal(a, b)
    assert with_it[0]["ratios"] == pytest.approx(alone["ratios"], rel=1e-3)
    assert len(alone["ratios"]) == 3


class _Once(torch.autograd.Function):
    """The square, whose gradient is a constant to autograd."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(values)
        return values.square()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: torch.Tensor) -> torch.Tensor:
        return 2 * above * ctx.saved_tensors[0]


def once_task() -> Task:
    """The same network with a loss that has no second derivative."""

    def loss(model: nn.Module, batch: Any) -> Loss:
        return Loss(_Once.apply(model(batch[0]) - batch[1]).mean(dim=1).sum(), len(batch[0]))

    return dataclasses.replace(tanh_task(), loss=loss)


def refused(base: str) -> tuple[str, str, bool]:
    """What a training of it says, and whether anything was written; runs on a rank."""
    flags = {"task": "tanh", "global_batch": 64, "steps": 4, "monitor": "sharpness", "precision": "fp32"}
    try:
        trained(flags, once_task(), base)
    except PacelineError as error:
        return error.what, error.why, Path(base, "run.json").exists()
    return "", "", True


def test_a_loss_without_a_second_derivative_is_refused_before_the_first_step(tmp_path: Path) -> None:
    """Not at the first evaluation, with an epoch lost; on a rank that would have no part of the measurement, too."""
    found = run_ranks(refused, 2, str(tmp_path / "run"), timeout_s=60)

    for what, why, written in found:
        assert what == "--monitor sharpness needs a loss that can be differentiated twice"
        assert "marked once_differentiable" in why
        assert not written


def at_infinity() -> tuple[int, str]:
    """What the monitor gives where weights are infinite; runs on a rank."""
    task = tanh_task()
    torch.manual_seed(0)
    model = task.model()
    monitor = Monitor(task, model, Like(torch.device("cpu"), torch.float32, False), samples=256, settings=Settings(0.1))
    with torch.no_grad():
        model[0].weight.fill_(math.inf)
    measured, note = monitor.measure(0.1)
    return len(measured), note


def test_where_the_curvature_is_not_finite_there_is_a_note_instead_of_a_number() -> None:
    """The training goes on, on every rank."""
    assert (
        run_ranks(at_infinity, 2)
        == [(0, "the sharpness was not measured: the Hessian times a vector is not finite")] * 2
    )
