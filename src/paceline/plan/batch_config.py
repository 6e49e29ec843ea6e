"""The settings of `paceline plan batch`. Nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.plan.choices import check_format, positive, whole_numbers
from paceline.records.errors import PacelineError
from paceline.records.rundir import RunDir
from paceline.records.target import Target, parse_target
from paceline.tasks.names import check_task_name
from paceline.tasks.table import BUILT_IN


def _option(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class BatchConfig:
    """All settings."""

    targets: list[str] = field(
        metadata={"help": "Runs of paceline train; or one task, on which the runs are made here."}
    )
    target: str | None = _option(None, "What counts as done, for instance accuracy=0.90 or loss=0.3.")
    workers: str = _option("1,2,4,8,16,32", "Numbers of workers in the table.")
    efficiency: float = _option(0.5, "Least part of what the workers could do that a recommended setting uses, 0 to 1.")
    speed: str | None = _option(None, "A directory of paceline plan speed: adds times.")
    batches: str | None = _option(None, "Of a task, or of --confirm: batch sizes to train. [default: 1 4 16 64 x base]")
    seeds: int = _option(2, "Of a task, or of --confirm: trainings at each batch size.")
    epochs: int | None = _option(None, "Of a task: where a run that does not reach the target ends.")
    lr_rule: str = _option("sqrt", "Of a task: what a larger batch does to the rate, see paceline train --lr-rule.")
    warmup: str | None = _option(None, "Of a task: see paceline train --warmup.")
    confirm: bool = _option(False, "Settle it: short trainings from the run's newest checkpoint at several batches.")
    train_workers: str = _option("auto", "Workers of the trainings that are made here.")
    data_dir: str | None = _option(None, "Where the data set is.")
    run_dir: str | None = _option(None, "Exactly this directory, instead of runs/<date>_<time>_plan-batch-<task>.")
    resume: str | None = _option(None, "A directory of this command: go on where it was stopped.")
    format: str = _option("text", "text, or json: one object at the end.")

    @property
    def worker_counts(self) -> list[int]:
        """In the table, ascending."""
        return whole_numbers("--workers", self.workers)

    @property
    def batch_sizes(self) -> list[int] | None:
        """To train at, ascending; None when they are left out."""
        return None if self.batches is None else whole_numbers("--batches", self.batches)

    @property
    def goal(self) -> Target | None:
        """The target; None without one."""
        return None if self.target is None else parse_target(self.target)

    @property
    def task(self) -> str | None:
        """The task that runs are made of; None where runs were named."""
        (first, *others) = self.targets
        is_task = not others and not (Path(first).is_dir() and (first not in BUILT_IN or RunDir(Path(first)).exists()))
        return first if is_task else None


def check(config: BatchConfig) -> None:
    """Refuse what cannot be right.

    Raises:
        PacelineError: naming the flag.
    """
    if not config.targets:
        raise PacelineError("neither a run nor a task was named", hint="paceline plan batch --help has examples")
    check_format(config.format)
    _ = config.worker_counts, config.batch_sizes, config.goal
    positive("--efficiency", config.efficiency, 1.0)
    for name in ("seeds", "epochs"):
        positive("--" + name, getattr(config, name))
    if config.task is None:
        _check_runs(config)
        return
    check_task_name(config.task)
    if config.goal is None:
        raise PacelineError(
            f"runs of {config.task} need a --target",
            why="what a batch costs is counted up to it",
            hint="--target accuracy=0.9",
        )
    if config.confirm:
        raise PacelineError("--confirm is of a run", hint="the runs of a task say all by themselves; leave it out")
    if config.batches is None and config.task not in BUILT_IN:
        raise PacelineError(f"the batch sizes for {config.task} are not known", hint="--batches 32,128,512,2048")


def _check_runs(config: BatchConfig) -> None:
    if len(config.targets) > 1 and config.goal is None:
        raise PacelineError(
            "several runs need a --target",
            why="they are compared by the steps that each took to it",
            hint="--target accuracy=0.9; or name one run, whose noise is looked at",
        )
    if config.confirm and len(config.targets) > 1:
        raise PacelineError("--confirm is of one run", hint="name the run whose checkpoint shall be branched")
    if config.epochs is not None or config.warmup is not None:
        raise PacelineError("--epochs and --warmup are of a task", hint="leave them out: the runs are as they are")
