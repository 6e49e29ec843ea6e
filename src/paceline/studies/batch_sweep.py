"""Trainings of one task to a target at several batches, checked before any of them is started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paceline.parallel.placement import parse_workers, usable_cores
from paceline.plan.batch_config import BatchConfig
from paceline.plan.batch_sizes import sizes_of_sweep
from paceline.records.errors import PacelineError
from paceline.settings.flag_text import as_flags
from paceline.studies.trainings import Training
from paceline.tasks.table import Defaults, TaskOptions
from paceline.train.checks import check
from paceline.train.config import TrainConfig
from paceline.train.resolve import recipe, resolve

if TYPE_CHECKING:
    from paceline.tasks.task import Task


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

    def settings(self, batch: int, seed: int) -> dict[str, Any]:
        """Of one training, by field name of `TrainConfig`."""
        own = {"epochs": self.epochs, "warmup": self.warmup}
        return {
            "global_batch": batch,
            "seed": seed,
            "target": self.target,
            "eval_every": "0.25ep",
            "checkpoint_every": "100000ep",
            "keep": 1,
            "lr_rule": self.lr_rule,
            # A rate that falls would make the steps to a target depend on how long the run was meant to be.
            "schedule": "constant",
            **{name: value for name, value in own.items() if value is not None},
        }


def sweep(of: Sweep) -> list[Training]:
    """Trainings to the target at each batch with each seed, seed by seed, so that a sweep cut short has all sizes."""
    return [
        Training(f"batch-{batch}-seed-{seed}", tuple(as_flags(TrainConfig, of.settings(batch, seed))))
        for seed in range(of.seeds)
        for batch in of.batches
    ]


def check_sweep(config: BatchConfig) -> None:
    """Refuse what can be refused without torch, and before a data set is fetched.

    Args:
        config: of a task.

    Raises:
        PacelineError: a flag that the trainings are given is wrong.
    """
    of = _sweep_of(config, config.batch_sizes or [1])
    for batch in of.batches:
        check(TrainConfig(task=str(config.task), **of.settings(batch, 0)))


def prepare_sweep(config: BatchConfig) -> list[Training]:
    """Load the task, and settle what is trained; nothing is started.

    Args:
        config: of a task, checked by `check_sweep`.

    Raises:
        PacelineError: the task cannot be loaded, does not measure the target, has too few samples for a batch; a
            scaling rule does not reach to one; or there are more workers than samples in one.
    """
    from paceline.tasks.task_loader import load_task

    name = str(config.task)
    task = load_task(name, TaskOptions(data_dir=config.data_dir))
    _require_metric(config, task)
    sizes = sizes_of_sweep(task.defaults.global_batch, len(task.train_data), config.batch_sizes)
    require_workers(sizes[0], config.train_workers)
    of = _sweep_of(config, sizes)
    for batch in sizes:
        check_training(name, batch, of.settings(batch, 0), task.defaults)
    return sweep(of)


def check_training(task: str, batch: int, settings: Mapping[str, Any], defaults: Defaults) -> None:
    """Refuse settings that `paceline train` would refuse, as far as they do not depend on data and machine.

    Raises:
        PacelineError: in the words of the training, with its batch before them.
    """
    try:
        config = TrainConfig(task=task, **settings)
        check(config)
        recipe(resolve(config, defaults))
    except PacelineError as error:
        hint = f"for paceline train: {error.hint}" if error.hint else ""  # it may name flags that only that has
        raise PacelineError(
            f"at a batch of {batch:,}: {error.what}", why=error.why, hint=hint, exit_code=error.exit_code
        ) from error


def require_workers(smallest: int, workers: str) -> None:
    """Refuse workers that the machine does not have, or of which some would never have a sample.

    Args:
        smallest: batch.
        workers: of --train-workers.

    Raises:
        PacelineError: naming that flag.
    """
    import torch

    devices = torch.cuda.device_count()
    asked = parse_workers(workers, flag="--train-workers")
    if asked is not None and 0 < devices < asked:
        raise PacelineError(
            f"--train-workers {asked} is more than this machine's {devices} CUDA device(s)",
            why="two NCCL ranks cannot share a device",
            hint=f"--train-workers {devices}, or auto",
        )
    count = asked or devices or usable_cores()
    if smallest < count:
        raise PacelineError(
            f"a batch of {smallest:,} cannot be shared by {count} workers",
            why="some would never have a sample",
            hint=f"--train-workers {smallest}, or --batches from {count} on",
        )


def _sweep_of(config: BatchConfig, sizes: Sequence[int]) -> Sweep:
    return Sweep(sizes, config.seeds, str(config.target), config.lr_rule, config.epochs, config.warmup)


def _require_metric(config: BatchConfig, task: Task) -> None:
    measured = ("loss", *task.metrics)
    if config.goal is not None and config.goal.metric not in measured:
        raise PacelineError(
            f"--target {config.goal.metric} is not measured by the task {task.name}",
            hint=f"it measures: {', '.join(measured)}",
        )
