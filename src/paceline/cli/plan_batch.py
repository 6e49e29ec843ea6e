"""`paceline plan batch`: which batch size, with how many workers, at which rate."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.cli.options import command_from
from paceline.plan.batch_config import BatchConfig, check
from paceline.records.errors import PacelineError

if TYPE_CHECKING:
    from paceline.plan.batch_result import Question
    from paceline.records.plan_results import BatchResult
    from paceline.records.rundir import RunDir
    from paceline.studies.branches import BranchTest
    from paceline.studies.trainings import Training

    Answer = Callable[[RunDir], BatchResult]
    """What is left to do once there is a directory."""

HELP = """Recommend a batch size, a number of workers and a learning rate.

Runs to a target at several batches give steps and time to the target. One run gives a first indication, from the
noise of its gradients.
"""
CONTROL = ("format", "train_workers", "workers", "data_dir", "speed", "efficiency")


def run_batch(given: dict[str, Any]) -> None:
    """Carry out `paceline plan batch` with what the user gave."""
    from paceline.cli.job import refuse_torchrun
    from paceline.cli.plan_frame import config_from, open_plan, resumed, show_plan, to_be_resumed
    from paceline.records.plan_results import write_plan
    from paceline.records.rundir import run_lock

    config: BatchConfig = config_from(BatchConfig, resumed("batch", {"targets": [], **given}, CONTROL))
    check(config)
    if config.trains:
        refuse_torchrun("paceline plan batch")
    name, answer = _prepared(config)  # everything that can be refused is refused before there is a directory
    run = open_plan("batch", name, dataclasses.asdict(config), config.run_dir, config.resume)
    with run_lock(run), to_be_resumed("batch", run):
        write_plan(run, answer(run))
    show_plan(run, config.format)


COMMAND = command_from(BatchConfig, "targets", run_batch, HELP)


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
    from paceline.records.plan_results import SpeedResult, read_plan
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
    from paceline.cli.job import obtain_data
    from paceline.cli.validate_task import try_task
    from paceline.studies.batch_sweep import check_sweep, prepare_sweep

    check_sweep(config)
    obtain_data(task, config.data_dir)
    try_task(task, {"data_dir": config.data_dir, "target": config.target}, config.format, config.train_workers)
    trainings = prepare_sweep(config)

    def answer(run: RunDir) -> BatchResult:
        runs = _trained(config, run, task, trainings, config.data_dir)
        return _from_runs([one.path for one in runs.values()], question)

    return Path(task).stem, answer


def _of_branches(config: BatchConfig, parent: Path, question: Question) -> tuple[str, Answer]:
    from paceline.cli.job import obtain_data
    from paceline.plan.batch_result import from_noise
    from paceline.studies.branches import check_parent, prepare_branches

    info = check_parent(parent)
    from_noise(parent, question)  # refused where no noise was recorded
    data_dir = config.data_dir or info.config.get("data_dir")
    obtain_data(str(info.config["task"]), data_dir)
    test = prepare_branches(parent, config)

    def answer(run: RunDir) -> BatchResult:
        runs = _trained(config, run, test.task, test.trainings(), data_dir)
        return _settled(test, runs, parent, question)

    return parent.resolve().name, answer


def _settled(test: BranchTest, runs: dict[str, RunDir], parent: Path, question: Question) -> BatchResult:
    import msgspec

    from paceline.plan.batch_result import from_noise
    from paceline.plan.branch import settle
    from paceline.studies.branches import losses

    branches = test.branches(runs)
    settled = settle(losses(branches))
    result = from_noise(parent, dataclasses.replace(question, settled=settled, branches=branches))
    return msgspec.structs.replace(result, warnings=[*result.warnings, *test.warnings()])


def _trained(
    config: BatchConfig, run: RunDir, task: str, trainings: Sequence[Training], data_dir: str | None
) -> dict[str, RunDir]:
    from paceline.cli.plan_frame import progress_of_trainings
    from paceline.studies.trainings import carry_out

    shared = ["--workers", config.train_workers, *(["--data-dir", data_dir] if data_dir is not None else [])]
    with progress_of_trainings(len(trainings), config.format) as tell:
        return carry_out(trainings, run.path / "runs", task, shared, tell=tell)
