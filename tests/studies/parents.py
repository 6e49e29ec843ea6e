"""Written-down runs that can be branched: settings as `paceline train` resolves them, noise, a checkpoint."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import msgspec

from paceline.checkpoint import manifest
from paceline.records.rundir import RunDir
from paceline.records.schema import GradientNorms, TaskFacts
from paceline.tasks.table import BUILT_IN
from paceline.train.config import TrainConfig
from paceline.train.resolve import Recipe, recipe, resolve
from tests.plan.runs import training


def parent(
    path: Path, *, samples: int = 60_000, step: int = 5_000, noise: float | None = 640.0, **settings: Any
) -> Path:
    """A run of digits, with so many training samples, up to a checkpoint.

    Args:
        path: its directory.
        samples: in its training set.
        step: of its checkpoint; 0 leaves none.
        noise: its noise scale, in every recorded step; None records none.
        settings: of `paceline train`.
    """
    config = resolve(TrainConfig("digits", **settings), BUILT_IN["digits"].defaults)
    batch = config.global_batch
    epoch = -(-samples // batch)
    task = TaskFacts(
        name="digits", parameters=9, train_samples=samples, eval_samples=9, steps_per_epoch=epoch, total_steps=6_000
    )
    made = recipe(config)
    training(path, micro=batch, config=dataclasses.asdict(config), task=task, facts=facts_of(config, made))
    if noise is not None:
        # Two groups of half a batch, gradients of length 1: |g_j|^2 = 1 + noise / n_j, without any scatter.
        square, reduced = 1 + noise / (batch / 2), 1 + noise / batch
        events = [
            GradientNorms(step=n, batch=batch, samples=[batch // 2] * 2, squares=[square] * 2, reduced=reduced)
            for n in range(1, 31)
        ]
        with RunDir(path).events().open("ab") as file:
            file.writelines(msgspec.json.encode(event) + b"\n" for event in events)
    if step:
        manifest.write(path / "checkpoints", step, 1, "digits", {"model.safetensors": b"weights"})
    return path


def facts_of(config: TrainConfig, made: Recipe) -> dict[str, Any]:
    """What a run records of its rate, and of what its rule made."""
    used = made.optimizer
    if config.lr_rule == "none":
        return {"lr": used.lr}
    rule = {"name": config.lr_rule, "batch_times": made.growth, "lr": used.lr, "betas": list(used.betas)}
    return {"lr": used.lr, "rule": {**rule, "eps": used.eps, "weight_decay": used.weight_decay, "ema_decay": 0.9}}
