"""`paceline plan batch`: which batch size, with how many workers, at which rate."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from paceline.cli.job import begin_trainings, obtain_data, refuse_torchrun
from paceline.cli.options import command_from
from paceline.cli.plan_frame import make_plan, settled, train_all
from paceline.plan.batch_config import BatchConfig, check
from paceline.records.errors import PacelineError
from paceline.records.plan_results import BatchResult, SpeedResult, read_plan

if TYPE_CHECKING:
    from paceline.plan.batch_result import Question
    from paceline.records.rundir import RunDir

    Answer = Callable[[RunDir], BatchResult]
    """What is left to do once there is a directory."""

HELP = """Recommend a batch size, a number of workers and a learning rate.

Runs to a target at several batches give steps and time to the target. One run gives a first indication, from the
noise of its gradients.
"""


def run_batch(given: dict[str, Any]) -> int:
    """Carry out `paceline plan batch` with what the user gave, and return the exit code."""
    named: dict[str, Any] = {} if "resume" in given else {"targets": []}
    config = settled("batch", BatchConfig, {**named, **given})
    if config.trains:
        refuse_torchrun("paceline plan batch")
        begin_trainings()
    check(config)
    name, answer = _prepared(config)
    return make_plan("batch", name, config, answer)


COMMAND = command_from(BatchConfig, run_batch, HELP)


def _prepared(config: BatchConfig) -> tuple[str, Answer]:
    """The plan's name, and what makes its result."""
    question = _question(config)
    if config.task is not None:
        return _of_task(config, config.task, question)
    if config.confirm:
        return _of_branches(config, Path(config.targets[0]), question)
    result = _from_runs([Path(path) for path in config.targets], question)
    return result.task, lambda run: result


def _question(config: BatchConfig) -> Question:
    from paceline.plan.batch_result import Question
    from paceline.plan.recipes import TrainSettings
    from paceline.plan.speed import predictor_of
    from paceline.studies.train_flags import recipe_flags, used

    times = None
    if config.speed is not None:
        found = read_plan(Path(config.speed))
        if not isinstance(found, SpeedResult):
            raise PacelineError(f"--speed {config.speed} is another plan", hint="a directory of paceline plan speed")
        times = predictor_of(found)
    settings = TrainSettings(used, recipe_flags)
    return Question(config.worker_counts, config.efficiency, settings, config.goal, times)


def _from_runs(paths: list[Path], question: Question) -> BatchResult:
    from paceline.plan.batch_result import from_noise, from_runs

    return from_runs(paths, question) if len(paths) > 1 else from_noise(paths[0], question)


def _of_task(config: BatchConfig, task: str, question: Question) -> tuple[str, Answer]:
    from paceline.cli.validate_task import try_task
    from paceline.studies.batch_sweep import check_sweep, prepare_sweep

    check_sweep(config)
    obtain_data(task, config.data_dir)
    settings = {"data_dir": config.data_dir, "target": config.target}
    trainings = prepare_sweep(config, try_task(task, settings, config.format, config.train_workers))

    def answer(run: RunDir) -> BatchResult:
        runs = train_all(trainings, run, task, config.format, workers=config.train_workers, data_dir=config.data_dir)
        return _from_runs([one.path for one in runs.values()], question)

    return Path(task).stem, answer


def _of_branches(config: BatchConfig, parent: Path, question: Question) -> tuple[str, Answer]:
    from paceline.plan.batch_result import from_noise
    from paceline.plan.branch import settle
    from paceline.studies.branches import check_parent, losses, prepare_branches

    info = check_parent(parent)
    from_noise(parent, question)  # refused where no noise was recorded
    data_dir = config.data_dir or info.config.get("data_dir")
    obtain_data(str(info.config["task"]), data_dir)
    test = prepare_branches(parent, config)

    def answer(run: RunDir) -> BatchResult:
        runs = train_all(test.trainings, run, test.task, config.format, workers=config.train_workers, data_dir=data_dir)
        branches = test.branches(runs)
        settled = dataclasses.replace(question, settled=settle(losses(branches)), branches=branches)
        result = from_noise(parent, settled)
        return msgspec.structs.replace(result, warnings=[*result.warnings, *test.warnings()])

    return parent.resolve().name, answer
