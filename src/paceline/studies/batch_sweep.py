"""Trainings that say what batches cost: a sweep to a target, and branches from one checkpoint."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.plan.rows import train_info
from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir
from paceline.records.schema import Evaluation
from paceline.studies.train_flags import recipe_flags
from paceline.studies.trainings import Training

LENGTHS = (1, 4, 16, 64)
"""Batches of a sweep, in units of the task's own."""
BRANCHES = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Sweep:
    """What is trained.

    Attributes:
        batches: sizes.
        seeds: of each.
        target: METRIC=VALUE.
        lr_rule: from the task's own batch and rate.
        epochs: at most; None takes the task's.
        warmup: None takes the task's.
    """

    batches: Sequence[int]
    seeds: int
    target: str
    lr_rule: str
    epochs: int | None = None
    warmup: str | None = None


def sweep(of: Sweep) -> list[Training]:
    """Trainings to the target at each batch with each seed, seed by seed, so that a sweep cut short has all sizes."""
    shared = ["--target", of.target, "--eval-every", "0.25ep", "--checkpoint-every", "100000ep", "--keep", "1"]
    # A rate that falls would make the steps to a target depend on how long the run was meant to be.
    shared += ["--lr-rule", of.lr_rule, "--schedule", "constant"]
    shared += ["--epochs", str(of.epochs)] if of.epochs is not None else []
    shared += ["--warmup", of.warmup] if of.warmup is not None else []
    return [
        Training(f"batch-{batch}-seed-{seed}", ("--global-batch", str(batch), "--seed", str(seed), *shared))
        for seed in range(of.seeds)
        for batch in of.batches
    ]


def branches(run: Path, batches: Sequence[int], seeds: int, samples: int, gains: Sequence[float]) -> list[Training]:
    """Short trainings with the run's own recipe from its newest checkpoint, over the same number of samples.

    Args:
        run: a training.
        batches: sizes, the run's own among them.
        seeds: of each: other orders of the samples.
        samples: that each takes, in whole steps.
        gains: what each batch multiplies the run's rate by.
    """
    config = train_info(run).config
    found = []
    for batch, gain in zip(batches, gains, strict=True):
        steps = max(1, math.ceil(samples / batch))
        flags = recipe_flags(
            config,
            global_batch=batch,
            lr=f"{float(config['lr']) * gain:.6g}",
            lr_rule=None,
            base_batch=None,
            schedule="constant",
            warmup=str(steps // 5),
            init_from=str(run.absolute()),
            steps=steps,
            eval_every=steps,
            checkpoint_every="100000ep",
            seed=None,
        )
        found += [
            Training(f"branch-{batch}-seed-{seed}", (*flags, "--seed", str(seed))) for seed in range(1, seeds + 1)
        ]
    return found


def last_loss(run: RunDir) -> float:
    """The loss of a training's last evaluation; NaN where it diverged before one."""
    found = math.nan
    for event in EventStream(run.events()):
        if isinstance(event, Evaluation) and "loss" in event.metrics:
            found = event.metrics["loss"].value
    return found
