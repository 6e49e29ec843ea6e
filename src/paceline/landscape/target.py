"""The target of a measurement, as run.json tells of it. Never imports torch."""

from __future__ import annotations

from pathlib import Path

from paceline.landscape.config import LandscapeConfig
from paceline.records.errors import PacelineError
from paceline.records.rundir import read_info
from paceline.records.schema import RunInfo
from paceline.tasks.names import is_run
from paceline.tasks.table import Part, TaskOptions


def train_run(path: Path) -> RunInfo:
    """run.json of a run whose weights can be looked at.

    Raises:
        PacelineError: not a run directory, or not one of `paceline train`.
    """
    info = read_info(path)
    if info.verb != "train":
        raise PacelineError(
            f"{path} is a run of paceline {info.verb}",
            why="only runs of paceline train have weights that can be looked at",
            hint="paceline landscape RUN, with a run of paceline train",
        )
    return info


def task_settings(config: LandscapeConfig) -> tuple[str, TaskOptions, Part]:
    """The task of the target, its options, and which part of its training set the run had."""
    path = Path(config.target)
    if not is_run(config.target):
        return config.target, TaskOptions(data_dir=config.data_dir), Part()
    stored = train_run(path).config
    options = TaskOptions(width=stored.get("width"), data_dir=config.data_dir or stored.get("data_dir"))
    part = Part(int(stored.get("holdout") or 0), stored.get("train_samples"), int(stored.get("seed") or 0))
    return str(stored.get("task")), options, part
