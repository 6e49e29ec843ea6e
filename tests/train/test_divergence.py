"""A training that diverges ends as such, at the right step, and never leaves a checkpoint of weights that are none."""

from __future__ import annotations

import math
from collections import deque
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from paceline.pool.warm_ranks import run_ranks
from paceline.records.errors import Exit, PacelineError
from paceline.tasks.task import Arrays, Loss, Task
from paceline.train.loop import require_finite
from paceline.train.objective import Totals
from tests.distributed.jobs import trained

STEPS = 6
FLAGS: dict[str, Any] = {
    "task": "edge",
    "global_batch": 8,
    "steps": STEPS,
    "lr": 0.1,
    "optimizer": "sgd",
    "momentum": 0.0,
    "schedule": "constant",
    "precision": "fp32",
    "eval_every": "1000",
    "checkpoint_every": "2",
    "keep": 9,
}


class _Spoiled(torch.autograd.Function):
    """Its value is that of its argument, its gradient is not a number."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, above: Tensor) -> Tensor:
        return above * math.nan


class Counting(nn.Module):
    """A linear model that counts its forwards in training."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(2, 1)
        self.register_buffer("forwards", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        """(samples, 1)"""
        self.forwards += self.training
        return self.line(x)


def edge_task(spoiled_at: int) -> Task:
    """Its gradient, not its loss, is not a number from step `spoiled_at` on."""
    x = torch.ones(32, 2)

    def loss(model: nn.Module, batch: Any) -> Loss:
        value = model(batch[0]).square().sum()
        spoiled = model.training and int(model.forwards) >= spoiled_at
        return Loss(_Spoiled.apply(value) if spoiled else value, len(batch[0]))

    return Task("edge", Counting, loss, Arrays(x), Arrays(x), count="samples")


def exploding_task() -> Task:
    """Each step makes the weights some hundred million times as large."""
    x = torch.ones(32, 2)

    def loss(model: nn.Module, batch: Any) -> Loss:
        return Loss(1e9 * model(batch[0]).square().sum(), len(batch[0]))

    return Task("edge", lambda: nn.Linear(2, 1), loss, Arrays(x), Arrays(x), count="samples")


def ended(base: str, spoiled_at: int, exploding: bool = False, more: dict[str, Any] | None = None) -> Any:
    """How it ended; runs on a rank."""
    task = exploding_task() if exploding else edge_task(spoiled_at)
    try:
        return trained(FLAGS | (more or {}), task, base)["outcome"]
    except PacelineError as error:
        return error.what, error.exit_code


def checkpoints(base: Path) -> list[str]:
    """Their names."""
    return sorted(path.name for path in (base / "checkpoints").glob("*"))


@pytest.mark.parametrize("spoiled_at", [4, 6])
@pytest.mark.parametrize("world", [1, 2])
def test_weights_that_are_no_numbers_are_never_saved(world: int, spoiled_at: int, tmp_path: Path) -> None:
    """Nor is the run a success, though the loss of every step was finite: at a checkpoint, and after the last step."""
    found = run_ranks(ended, world, str(tmp_path), spoiled_at)

    assert found == [(f"weights are not finite after step {spoiled_at}", Exit.DIVERGED)] * world
    assert checkpoints(tmp_path) == [f"step-{step:08d}" for step in range(2, spoiled_at, 2)]


def test_a_last_update_that_spoils_the_loss_is_a_divergence(tmp_path: Path) -> None:
    """Finite weights, whose loss is beyond float32: no step after it could have shown that."""
    steps = 0
    for steps in range(1, 9):
        found = run_ranks(ended, 1, str(tmp_path / str(steps)), 0, True, {"steps": steps})[0]
        if found != "finished":
            break

    what, code = found
    assert what.startswith("the loss of the evaluation is inf after step")
    assert what.endswith(f"after step {steps}, the last one")
    assert code == Exit.DIVERGED
    assert f"step-{steps:08d}" not in checkpoints(tmp_path / str(steps))


@pytest.mark.parametrize(("place", "step"), [(0, 5), (1, 6), (2, 7)])
def test_the_step_is_named_whose_loss_was_no_number(place: int, step: int) -> None:
    """Also where losses are read two steps later, as on CUDA; the step that is going on has no entry yet."""
    unread = deque({"step": number} for number in (5, 6))
    totals = [Totals(math.nan if number == place else 1.0, 1.0, False, False) for number in range(3)]

    with pytest.raises(PacelineError) as caught:
        require_finite(totals, unread, 7)

    assert caught.value.what == f"the loss is nan at step {step}"
