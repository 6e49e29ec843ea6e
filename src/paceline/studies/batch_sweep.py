"""Trainings of one task to a target at several batches, checked before any of them is started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.launch.local_machine import cuda_devices
from paceline.parallel.placement import parse_workers, usable_cores
from paceline.plan.batch_config import BatchConfig
from paceline.plan.batch_sizes import sizes_of_sweep
from paceline.records.errors import PacelineError, choices
from paceline.settings.flag_text import as_flags
from paceline.studies.trainings import Grid, grid
from paceline.tasks.description import TaskDescription
from paceline.tasks.table import Defaults
from paceline.train.checks import check
from paceline.train.config import TrainConfig
from paceline.train.resolve import recipe, resolve


def settings_of_sweep(config: BatchConfig, batch: int, seed: int) -> dict[str, Any]:
    """Of one training to the target, by field name of `TrainConfig`.

    Args:
        config: of a task.
        batch: samples a step.
        seed: of the training.
    """
    own = {"epochs": config.epochs, "warmup": config.warmup}
    return {
        "global_batch": batch,
        "seed": seed,
        "target": config.target,
        "eval_every": "0.25ep",
        "checkpoint_every": "100000ep",
        "keep": 1,
        "lr_rule": config.lr_rule,
        # A rate that falls would make the steps to a target depend on how long the run was meant to be.
        "schedule": "constant",
        **{name: value for name, value in own.items() if value is not None},
    }


def sweep(config: BatchConfig, sizes: Sequence[int]) -> Grid:
    """Trainings to the target at each batch with each seed."""
    return grid(
        "batch", sizes, range(config.seeds), lambda *each: as_flags(TrainConfig, settings_of_sweep(config, *each))
    )


def check_sweep(config: BatchConfig) -> None:
    """Refuse what can be refused without torch, and before a data set is fetched.

    Args:
        config: of a task.

    Raises:
        PacelineError: a flag that the trainings are given is wrong.
    """
    for batch in config.batch_sizes or [1]:
        check(TrainConfig(task=str(config.task), **settings_of_sweep(config, batch, 0)))


def prepare_sweep(config: BatchConfig, task: TaskDescription) -> Grid:
    """Settle what is trained; nothing is started.

    Args:
        config: of a task, checked by `check_sweep`.
        task: that one.

    Raises:
        PacelineError: the task does not measure the target, or has too few samples for a batch; a scaling rule does
            not reach to one; or there are more workers than samples in one.
    """
    if config.goal is not None:
        require_measured(config.goal.metric, task, "--target ")
    sizes = sizes_of_sweep(task.defaults.global_batch, task.train_samples, config.batch_sizes)
    require_workers(sizes[0], config.train_workers)
    for batch in sizes:
        check_training(str(config.task), batch, settings_of_sweep(config, batch, 0), task.defaults)
    return sweep(config, sizes)


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
    devices = cuda_devices()
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


def require_measured(metric: str, task: TaskDescription, flag: str = "") -> None:
    """Refuse a metric that the task does not measure; `flag`, with a space behind it, is what named it."""
    measured = ("loss", *task.metrics)
    if metric not in measured:
        raise PacelineError(
            f"{flag}{metric} is not measured by the task {task.name}", hint=f"it measures: {choices(measured)}"
        )
