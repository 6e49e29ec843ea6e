"""Averages of the weights: what is evaluated, what a target sees and what a checkpoint holds, against plain PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from paceline.checkpoint.state import load_model
from paceline.parallel.partition import epoch_order
from paceline.pool.warm_ranks import run_ranks
from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir
from paceline.records.schema import Evaluation, Note
from tests.distributed.jobs import small_task, trained

SAMPLES, BATCH, EPOCH, EPOCHS, EVALUATED = 203, 30, 7, 4, 53
LIMIT = 1e-12
COMMON: dict[str, Any] = {
    "task": "small",
    "global_batch": BATCH,
    "epochs": EPOCHS,
    "lr": 0.05,
    "momentum": 0.9,
    "weight_decay": 0.01,
    "schedule": "constant",
    "precision": "fp64",
    "batch_norm": "sync",
    "eval_every": "1000",
    "checkpoint_every": "14",
    "keep": 9,
}
KINDS: dict[str, dict[str, Any]] = {
    "ema": {"average": "ema", "ema_decay": 0.9},
    "swa": {"average": "swa", "swa_from": 0.5},
}


def batches(epoch: int) -> list[Tensor]:
    """Rows of each batch of an epoch."""
    return list(torch.from_numpy(epoch_order(SAMPLES, 0, epoch)).split(BATCH))


def plain(kind: str) -> dict[int, tuple[dict[str, Tensor], dict[str, Tensor]]]:
    """State dicts of the trained and of the averaged model after 14 and 28 steps, in one process without Paceline."""
    task = small_task(SAMPLES, norm=True)
    x, y = task.train_data.columns
    torch.manual_seed(0)
    model = task.model().double()
    decays = {True: 0.01, False: 0.0}
    groups = [
        {"params": [p for p in model.parameters() if (p.ndim > 1) is matrix], "weight_decay": decay}
        for matrix, decay in decays.items()
    ]
    optimizer = torch.optim.SGD(groups, lr=0.05, momentum=0.9)
    average: dict[str, Tensor] = {}
    found = {}
    for step, rows in enumerate((rows for epoch in range(EPOCHS) for rows in batches(epoch)), 1):
        optimizer.zero_grad()
        functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
        now = {name: value.detach().double().clone() for name, value in model.state_dict().items()}
        if kind == "ema":
            average = {name: 0.9 * average.get(name, value) + 0.1 * value for name, value in now.items()}
        elif step % EPOCH == 0 and step >= 14:
            taken = step // EPOCH - 1
            average = {name: ((taken - 1) * average.get(name, 0.0) + value) / taken for name, value in now.items()}
            # Its own statistics: the mean over the first epoch's batches of what the first layer makes of them.
            made = [x[rows] @ average["0.weight"].T for rows in batches(0)]
            average["1.running_mean"] = torch.stack([values.mean(0) for values in made]).mean(0)
            average["1.running_var"] = torch.stack([values.var(0) for values in made]).mean(0)
        if step in (14, 28):
            found[step] = now, dict(average)
    return found


def measured(state: dict[str, Tensor]) -> dict[str, float]:
    """Loss and accuracy of a state dict on the evaluation set."""
    task = small_task(SAMPLES, norm=True)
    model = task.model().double()
    model.load_state_dict(state)
    x, y = task.eval_data.columns
    with torch.no_grad():
        logits = model.eval()(x)
    return {
        "loss": functional.cross_entropy(logits, y).item(),
        "accuracy": (logits.argmax(1) == y).double().mean().item(),
    }


def events(run: Path, kind: type) -> list[Any]:
    """Of rank 0."""
    return [event for event in EventStream(RunDir(run).events(0)) if isinstance(event, kind)]


def job(base: str, kind: str, more: dict[str, Any] | None = None) -> dict[str, Any]:
    """A training with an average; runs on a rank."""
    return trained(COMMON | KINDS[kind] | (more or {}), small_task(SAMPLES, norm=True), base)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("world", [1, 3])
def test_the_average_is_what_is_saved_and_measured(world: int, kind: str, tmp_path: Path) -> None:
    """Weights and statistics at a checkpoint between evaluations and at the end; numbers of the raw weights beside."""
    run_ranks(job, world, str(tmp_path), kind, timeout_s=120)

    expected = plain(kind)
    for step, (_, average) in expected.items():
        saved = load_model(tmp_path / "checkpoints" / f"step-{step:08d}")
        for name in average.keys() - {"1.num_batches_tracked"}:
            error = (saved[name] - average[name]).norm() / average[name].norm()
            assert error <= LIMIT, f"{name} after step {step}: {error}"
    (last,) = events(tmp_path, Evaluation)
    raw, average = expected[28]
    wanted = measured(average) | {f"raw_{name}": value for name, value in measured(raw).items()}
    assert {name: measure.value for name, measure in last.metrics.items()} == pytest.approx(wanted, rel=1e-11)
    assert {measure.count for measure in last.metrics.values()} == {EVALUATED}
    assert abs(wanted["loss"] - wanted["raw_loss"]) > 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_is_met_by_the_average(kind: str, tmp_path: Path) -> None:
    """A loss between its own and that of the raw weights is reached just where its own is the lower one."""
    run_ranks(job, 1, str(tmp_path / "first"), kind)
    (metrics,) = (event.metrics for event in events(tmp_path / "first", Evaluation))
    own, raw = metrics["loss"].value, metrics["raw_loss"].value

    (again,) = run_ranks(job, 1, str(tmp_path / "again"), kind, {"target": f"loss={(own + raw) / 2!r}"})

    assert again["outcome"] == ("target" if own < raw else "finished")


def lengthened(base: str, before: int) -> None:
    """A run of 8 epochs, and one of `before` that is made as long; runs on a rank."""
    job(f"{base}/whole", "swa", {"epochs": 8})
    job(f"{base}/half", "swa", {"epochs": before})
    job(f"{base}/half", "swa", {"epochs": 8, "resume": f"{base}/half"})


@pytest.mark.parametrize("before", [3, 4])
def test_an_average_of_a_run_that_is_made_longer_begins_anew(before: int, tmp_path: Path) -> None:
    """With the weights that an undisturbed long run averages, those of the fourth epoch first, to the bit."""
    run_ranks(lengthened, 1, str(tmp_path), before, timeout_s=120)

    ends = [load_model(tmp_path / which / "checkpoints" / "step-00000056") for which in ("whole", "half")]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
    assert any("its average begins anew" in note.message for note in events(tmp_path / "half", Note))


def test_what_an_average_holds_beyond_its_range_is_said(tmp_path: Path) -> None:
    """Six epochs, averaged from the third, made eight, to be averaged from the fourth: both hold the sixth."""
    run_ranks(lengthened, 1, str(tmp_path), 6, timeout_s=120)

    (note,) = [note for note in events(tmp_path / "half", Note) if "--swa-from" in note.message]
    assert "would begin after step 28, but it holds weights from step 21 on" in note.message
    ends = [load_model(tmp_path / which / "checkpoints" / "step-00000056")["0.weight"] for which in ("whole", "half")]
    assert not np.array_equal(*ends)
