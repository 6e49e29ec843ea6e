"""From settings and a task to a complete request, by one process alone: what can be refused without a worker.

Ranks go through the same functions when they build the job; the launcher goes through them first, in task validation.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from torch import nn

from paceline.checkpoint import manifest
from paceline.checkpoint.find import find_checkpoint, load_into
from paceline.checkpoint.state import load_model
from paceline.parallel.placement import RankEnv
from paceline.records.errors import PacelineError
from paceline.records.target import Target, parse_target
from paceline.tasks.contract import Problem
from paceline.tasks.holdout import Part, narrow
from paceline.tasks.load import load_task
from paceline.tasks.table import Defaults
from paceline.tasks.targets import FRACTION, require_reachable
from paceline.tasks.task import Task, accuracy
from paceline.tasks.task_source import TaskSource
from paceline.train.batch_plan import Plan
from paceline.train.checks import check
from paceline.train.config import TrainConfig
from paceline.train.resolve import Recipe, recipe, resolve
from paceline.train.schedules import Schedule
from paceline.train.timetable import timetable


@dataclass(frozen=True)
class Request:
    """What is trained, in numbers.

    Attributes:
        config: resolved.
        rates: what the scaling rule makes of it.
        plan: how the data are cut.
        schedule: the rate of each step.
    """

    config: TrainConfig
    rates: Recipe
    plan: Plan
    schedule: Schedule


def load(config: TrainConfig) -> Task:
    """The task, with the part of its data that the run has.

    Raises:
        PacelineError: it cannot be loaded, or has no such part.
    """
    part = Part(config.holdout, config.train_samples, config.seed)
    task = narrow(load_task(config.task, config.task_options), part)
    if len(task.train_data) == 0 or len(task.eval_data) == 0:
        raise PacelineError(f"the task {task.name} has no data", hint="its train_data and eval_data need samples")
    return task


def check_defaults(task: Task, source: TaskSource) -> None:
    """Refuse a default of the task that no flag would be allowed to have.

    Raises:
        PacelineError: naming the field, not the flag that nobody typed.
    """
    for field in fields(Defaults):
        try:
            check(TrainConfig("", **{field.name: getattr(task.defaults, field.name)}))
        except PacelineError as error:
            what = error.what.removeprefix(f"{TrainConfig.flag(field.name)} ")
            raise Problem(f"defaults.{field.name}", what, error.hint, error.why).error(source) from None


def settle(config: TrainConfig, task: Task, env: RankEnv) -> Request:
    """Fill in the task's defaults, and cut the data.

    Raises:
        PacelineError: a setting or a default of the task is out of range, or a batch cannot be shared by the workers.
    """
    samples = len(task.train_data)
    config = resolve(config, task.defaults)
    rates = recipe(config, samples)
    plan, schedule = timetable(config, rates, samples, env)
    return Request(config, rates, plan, schedule)


def target_of(config: TrainConfig, task: Task) -> Target | None:
    """The target; None if there is none.

    Raises:
        PacelineError: the task does not measure it, or it can never be reached.
    """
    target = parse_target(config.target, config.patience) if config.target else None
    if target is None:
        return None
    if target.metric not in ("loss", *task.metrics):
        raise PacelineError(
            f"--target {target.metric} is not measured by the task {task.name}",
            hint=f"it measures: {', '.join(('loss', *task.metrics))}",
        )
    measured: Any = task.metrics.get(target.metric)
    if measured is accuracy:
        require_reachable(target, FRACTION)
    return target


def begin_with(model: nn.Module, path: Path) -> list[str]:
    """Give the model the weights and buffers of a run's newest checkpoint, or of a checkpoint.

    Raises:
        PacelineError: there is none, or it does not fit.
    """
    checkpoint = path if (path / manifest.MANIFEST).exists() else find_checkpoint(path, None)[1]
    manifest.require(checkpoint)
    load_into(model, load_model(checkpoint), checkpoint)
    return [f"begun with the weights of {checkpoint}"]
