"""N ranks compute what one process computes: the promise that everything else rests on."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from paceline.parallel.partition import batch_span, epoch_order
from paceline.pool.warm_ranks import run_ranks
from tests.distributed.jobs import small_task, trained

STEPS = 50
LIMIT = 1e-13
SIZES, BATCHES, ACCUMULATIONS = (1003, 64), (64, 60), (1, 3)
OPTIMIZERS = ("sgd", "adamw")


def one_process(samples: int, batch: int, optimizer: str, *, tokens: bool = False) -> list[np.ndarray]:
    """The same training in plain PyTorch, one process, no DDP, mean losses: the independent reference."""
    task = small_task(samples, tokens=tokens)
    torch.manual_seed(0)
    model = task.model().double()
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.01},
        {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0},
    ]
    if optimizer == "sgd":
        stepper: torch.optim.Optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
    else:
        stepper = torch.optim.AdamW(groups, lr=0.01)
    columns = task.train_data.columns
    steps = -(-samples // batch)
    for step in range(STEPS):
        epoch, index = divmod(step, steps)
        span = batch_span(samples, batch, index)
        picked = torch.from_numpy(epoch_order(samples, 0, epoch)[span.start : span.stop])
        rows = [c[picked] for c in columns]
        each = nn.functional.cross_entropy(model(rows[0]), rows[1], reduction="none")
        loss = (each * rows[2]).sum() / rows[2].sum() if tokens else each.mean()
        stepper.zero_grad()
        loss.backward()
        stepper.step()
    return [p.detach().numpy() for p in model.parameters()]


def config(batch: int, accumulation: int, optimizer: str) -> dict[str, object]:
    """Settings that match `one_process`."""
    return {
        "task": "small",
        "global_batch": batch,
        "accumulate": accumulation,
        "steps": STEPS,
        "optimizer": optimizer,
        "lr": 0.1 if optimizer == "sgd" else 0.01,
        "momentum": 0.9 if optimizer == "sgd" else None,
        "weight_decay": 0.01,
        "schedule": "constant",
        "precision": "fp64",
        "eval_every": "1000",
        "checkpoint_every": "1000",
    }


def worst(ours: list[np.ndarray], reference: list[np.ndarray]) -> float:
    """The largest relative difference of a tensor."""
    return max(np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(ours, reference, strict=True))


def grid(world: int, base: str) -> list[tuple[str, float, bool]]:
    """All cells of one world size in one set of ranks; runs on a rank."""
    results = []
    for number, cell in enumerate(itertools.product(SIZES, BATCHES, ACCUMULATIONS, OPTIMIZERS)):
        samples, batch, accumulation, optimizer = cell
        done = trained(config(batch, accumulation, optimizer), (samples, False), f"{base}/{number}")
        error = worst(done["parameters"], one_process(samples, batch, optimizer))
        results.append((str(cell), error, done["bit_equal"]))
    return results


@pytest.mark.parametrize("world", [1, 2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_weights_after_50_steps_equal_those_of_one_plain_process(world: int, tmp_path: Path) -> None:
    """Any world size, accumulation and uneven batch: one process's weights within 1e-13, all ranks the same bits."""
    ranks = run_ranks(grid, world, world, str(tmp_path), timeout_s=240)

    for cells in ranks:
        assert len(cells) == 16
        for cell, error, bit_equal in cells:
            assert error <= LIMIT, f"{cell}: {error}"
            assert bit_equal, cell


def tokens_on_ranks(base: str) -> float:
    """A loss that counts weights; runs on a rank."""
    done = trained(config(60, 2, "sgd"), (1003, True), base)
    return worst(done["parameters"], one_process(1003, 60, "sgd", tokens=True))


@pytest.mark.parametrize("world", [1, 3])
def test_a_loss_that_counts_tokens_is_divided_by_the_tokens_of_all_ranks(world: int, tmp_path: Path) -> None:
    """The mean over tokens is global, not a mean of the ranks' means."""
    errors = run_ranks(tokens_on_ranks, world, str(tmp_path), timeout_s=120)

    assert max(errors) <= LIMIT


def test_the_reference_notices_a_wrong_gradient_scale() -> None:
    """The comparison can fail: another batch size gives other weights by far more than the limit."""
    assert worst(one_process(1003, 64, "sgd"), one_process(1003, 60, "sgd")) > 1e-3
