"""The trainings of a learning curve, and what came of them.

**How long each size is trained decides what the curve says.** With the same number of epochs a small part of the
data takes few steps, so it is trained too little, not only on too little: the curve falls too steeply, and promises too
much. So by default every size takes as many steps as the largest does, and its warm-up as many of them; schedules are
laid out over the run, whatever its length. The price is that a small size costs as much as the largest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline.parallel.partition import steps_per_epoch
from paceline.plan.data_config import LEAST_FRACTIONS, DataConfig
from paceline.records.errors import PacelineError, choices
from paceline.records.plan_results import CurvePoint
from paceline.records.rundir import RunDir
from paceline.records.target import less_is_better
from paceline.settings.flag_text import as_flags, parse_flags
from paceline.studies.batch_sweep import require_measured
from paceline.studies.trainings import Grid, grid, last_end, last_evaluation
from paceline.tasks.description import TaskDescription
from paceline.train.checks import check
from paceline.train.config import TrainConfig
from paceline.train.resolve import resolve
from paceline.train.schedules import Duration

_NEVER = "100000ep"
"""The last step is evaluated and checkpointed in any case, and nothing else is looked at."""
_OWN = (
    "task", "train_samples", "holdout", "seed", "epochs", "steps", "global_batch", "lr", "target", "patience",
    "eval_every", "lr_rule", "base_batch", "keep_updates", "grow_batch", "max_batch",
)  # fmt: skip
"""Settings that the curve has flags of its own for, or that would make the length of a training depend on its size."""


@dataclass(frozen=True)
class LearningCurveStudy:
    """What is trained.

    Attributes:
        task: as the trainings have it, but for its size.
        batch: samples a step.
        epochs: of the largest size.
        length: of `plan.data_config.LENGTHS`.
        metric: a name that the task measures.
        trainings: by size and seed.
        cost: what is about to be trained, in a line.
    """

    task: TaskDescription
    batch: int
    epochs: int
    length: str
    metric: str
    trainings: Grid
    cost: str

    def points(self, runs: Mapping[str, RunDir]) -> list[CurvePoint]:
        """What came of them, by size, then by seed.

        Args:
            runs: by the names of `trainings`, all ended.

        Raises:
            PacelineError: a training has no evaluation of the metric.
        """
        return [_point(runs[training.name], *key, self.metric) for key, training in sorted(self.trainings.items())]


def asked_of_trainings(config: DataConfig) -> TrainConfig:
    """What every training is asked for, whatever its size.

    Raises:
        PacelineError: a flag is wrong.
    """
    own, given = _given(config)
    asked = TrainConfig(task=config.task, epochs=config.epochs, data_dir=config.data_dir, **own, **given)
    check(asked)
    return asked


def _given(config: DataConfig) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings that were given for all trainings: by flags of the plan, and by --train-flags."""
    own = {"holdout": config.holdout or None, "global_batch": config.global_batch, "lr": config.lr}
    given = parse_flags(TrainConfig, config.train_flags or "", "--train-flags", _OWN)
    return {field: value for field, value in own.items() if value is not None}, given


def prepare(config: DataConfig, task: TaskDescription) -> LearningCurveStudy:
    """Settle what is trained; nothing is started.

    Args:
        config: checked.
        task: without what is held out.

    Raises:
        PacelineError: the task does not measure the metric, or has too few samples; or a flag is wrong.
    """
    resolved = resolve(asked_of_trainings(config), task.defaults)
    batch, epochs = resolved.global_batch, int(resolved.length.value)
    sizes = _sizes(config, task.train_samples)
    length, each = {"epochs": epochs}, f"{epochs} epochs"
    if config.length == "steps":
        epoch = steps_per_epoch(sizes[-1], batch)
        # A warm-up in epochs would shrink with the size.
        warmup = Duration.parse(resolved.warmup, "--warmup").steps(epoch)
        length, each = {"steps": epochs * epoch, "warmup": warmup}, f"{epochs * epoch:,} steps"
    own, given = _given(config)
    shared = as_flags(TrainConfig, own | {"global_batch": batch} | given)
    shared += as_flags(TrainConfig, length | {"eval_every": _NEVER, "checkpoint_every": _NEVER, "keep": 1})
    return LearningCurveStudy(
        task=task,
        batch=batch,
        epochs=epochs,
        length=config.length,
        metric=_metric(config.asked_metric, task),
        trainings=grid(
            "samples",
            sizes,
            range(config.seeds),
            lambda size, seed: [*as_flags(TrainConfig, {"train_samples": size, "seed": seed}), *shared],
        ),
        cost=(
            f"{len(sizes)} sizes from {sizes[0]:,} to {sizes[-1]:,} samples, with {config.seeds} "
            f"seed{'s' if config.seeds != 1 else ''}: trainings of {each}, {batch:,} samples a step"
        ),
    )


def as_error(metric: str, value: float) -> float:
    """A value of the metric as what falls: one minus an accuracy, else the metric itself."""
    return 1 - value if metric == "accuracy" else value


def _sizes(config: DataConfig, total: int) -> list[int]:
    sizes = sorted({math.floor(part * total + 0.5) for part in config.parts} - {0})
    if len(sizes) < LEAST_FRACTIONS:
        raise PacelineError(
            f"--fractions {config.fractions} of {total:,} samples are {len(sizes)} sizes",
            hint=f"{LEAST_FRACTIONS} or more that differ: {choices(f'{part}' for part in config.parts)} is too close",
        )
    return sizes


def _metric(asked: str | None, task: TaskDescription) -> str:
    """The metric of the curve.

    Raises:
        PacelineError: the task does not measure it, or it does not fall.
    """
    if asked is None:
        return "accuracy" if "accuracy" in task.metrics else "loss"
    require_measured(asked, task)
    if asked != "accuracy" and not less_is_better(asked):
        falling = [each for each in ("loss", *task.metrics) if each == "accuracy" or less_is_better(each)]
        raise PacelineError(
            f"{asked} has no learning curve",
            why="a power law is of what falls: a loss, an error, or one minus accuracy",
            hint=f"--metric, of: {choices(falling)}",
        )
    return asked


def _point(run: RunDir, size: int, seed: int, metric: str) -> CurvePoint:
    last = last_evaluation(run, metric)
    value = last.metrics[metric].value if last is not None else math.nan
    end = last_end(run)
    diverged = (end is not None and end.reason == "diverged") or (last is not None and not math.isfinite(value))
    if last is None and not diverged:
        raise PacelineError(f"{run.path} has no evaluation of {metric}", hint="remove it, and call the plan again")
    return CurvePoint(
        run=str(run.path),
        samples=size,
        seed=seed,
        error=None if diverged else as_error(metric, value),
        steps=end.step if end is not None else 0,
    )
