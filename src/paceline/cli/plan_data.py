"""`paceline plan data`: how much more data a target needs, and what training on them costs."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.cli.job import begin_trainings, obtain_data, refuse_torchrun
from paceline.cli.options import command_from
from paceline.cli.plan_frame import make_plan, settled, train_all
from paceline.plan.data_config import DataConfig, check
from paceline.records.errors import PacelineError
from paceline.records.rundir import RunDir, read_info
from paceline.tasks.table import BUILT_IN

if TYPE_CHECKING:
    from paceline.records.plan_results import DataResult
    from paceline.studies.learning_curve import LearningCurveStudy

HELP = """Predict how much more data and computing a target needs.

Trains on parts of the training set and fits how the error falls with the number of samples.
"""


def run_data(given: dict[str, Any]) -> int:
    """Carry out `paceline plan data` with what the user gave, and return the exit code."""
    from paceline.cli.validate_task import try_task

    refuse_torchrun("paceline plan data")
    config = _settled(given)
    begin_trainings()
    from paceline.studies.learning_curve import asked_of_trainings, prepare

    obtain_data(config.task, config.data_dir)
    settings = {"data_dir": config.data_dir, "holdout": config.holdout, "width": asked_of_trainings(config).width}
    task = try_task(config.task, settings, config.format, config.workers)
    study = prepare(config, task)
    return make_plan("data", Path(config.task).stem, config, lambda run: _learn(config, study, run))


COMMAND = command_from(DataConfig, run_data, HELP)


def _settled(given: dict[str, Any]) -> DataConfig:
    """What was given, with what the plan to be resumed had, checked."""
    if "task" not in given and "resume" not in given:
        raise PacelineError("no task was named", hint=f"one of {', '.join(BUILT_IN)}, or a Python file with task()")
    config = settled("data", DataConfig, given)
    if any(target.metric != config.asked_metric for target in config.targets):
        # Of the two, a stored one is an answer to an older question: what is asked now counts.
        if "metric" in given and "target" not in given:
            config = dataclasses.replace(config, target=None)
        elif "target" in given and "metric" not in given:
            config = dataclasses.replace(config, metric=None)
    check(config)
    return config


def _learn(config: DataConfig, study: LearningCurveStudy, run: RunDir) -> DataResult:
    from paceline.cli.validate_task import forward_flop
    from paceline.plan.data_needs import Question, learn
    from paceline.studies.learning_curve import as_error

    forward = forward_flop(config.task, config.data_dir, config.holdout)
    if config.format == "text":
        sys.stderr.write(f"{study.cost}\n")
    runs = train_all(study.trainings, run, config.task, config.format, workers=config.workers, data_dir=config.data_dir)
    precision = read_info(next(iter(runs.values())).path).precision or "the trainings' precision"
    question = Question(
        task=study.task.name,
        metric="error" if study.metric == "accuracy" else study.metric,
        batch=study.batch,
        epochs=study.epochs,
        length=study.length,
        targets=[as_error(study.metric, target.value) for target in config.targets],
        forward_flop=forward,
        device=config.device(precision),
    )
    return learn(study.points(runs), question)
