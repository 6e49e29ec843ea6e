"""The settings of `paceline plan batch`. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields

from paceline.parallel.placement import parse_workers
from paceline.records.errors import PacelineError
from paceline.records.target import Target, parse_target
from paceline.settings.declare import VerbSettings, argument, control, format_setting, run_dir_setting, setting
from paceline.settings.legal import ABOVE_ZERO, PER_DEVICE
from paceline.settings.typed_number import whole_numbers
from paceline.tasks.names import check_task_name, is_run
from paceline.tasks.targets import check_target


@dataclass(frozen=True)
class BatchConfig(VerbSettings):
    """All settings."""

    noun = "plan"

    targets: list[str] = argument(  # noqa: RUF009  # a field
        "Runs of paceline train, or one task, for which the runs are made by this command."
    )

    target: str | None = setting(
        None, "Goal of the training, for example accuracy=0.90 or loss=0.3.", value="METRIC=VALUE", group="Question"
    )
    workers: str = control("1,2,4,8,16,32", "Numbers of workers to tabulate.", whole_numbers, value="N,N,...")
    efficiency: float = control(
        0.5, "Least progress per worker to recommend, relative to one worker at the base batch: 0.5 or 50%.", share=True
    )
    speed: str | None = control(
        None, "Run directory of paceline plan speed, whose times are added to the table.", value="RUN"
    )
    confirm: bool = setting(
        False, "Test the answer with short trainings at several batches, from the run's newest checkpoint."
    )

    batches: str | None = setting(
        None,
        "Batch sizes to train. [default: 1, 4, 16 and 64 times the base batch; with --confirm 1, 2, 4, 8 and 16 times]",
        whole_numbers,
        value="N,N,...",
        group="Trainings made for a task or by --confirm",
    )
    seeds: int = setting(2, "Trainings per batch size.", ABOVE_ZERO)
    epochs: int | None = setting(None, "Epochs after which a training gives up on the target.", ABOVE_ZERO)
    lr_rule: str = setting(
        "sqrt", "How the rate scales with the batch size, as in paceline train --lr-rule.", value="NAME"
    )
    warmup: str | None = setting(None, "Length of the warm-up, as in paceline train --warmup.", value="LENGTH")
    train_workers: str = control("auto", f"Worker processes of each training: {PER_DEVICE}", parse_workers, value="N")
    data_dir: str | None = control(None, "Directory of the data set.", value="DIR")

    resume: str | None = control(
        None, "Resume a stopped plan from its run directory.", value="RUN", group="Resuming and output"
    )
    run_dir: str | None = run_dir_setting("plan-batch-<task> (with --confirm: <run>)")
    format: str = format_setting()

    @property
    def worker_counts(self) -> list[int]:
        """In the table, ascending."""
        return whole_numbers(self.workers, "--workers")

    @property
    def batch_sizes(self) -> list[int] | None:
        """To train at, ascending; None when they are left out."""
        return None if self.batches is None else whole_numbers(self.batches, "--batches")

    @property
    def goal(self) -> Target | None:
        """The target; None without one."""
        return None if self.target is None else parse_target(self.target)

    @property
    def task(self) -> str | None:
        """The task that runs are made of; None where runs were named."""
        (first, *others) = self.targets
        return first if not others and not is_run(first) else None

    @property
    def trains(self) -> bool:
        """Whether trainings are made here."""
        return self.task is not None or self.confirm


_OF_TASKS = ("epochs", "warmup", "lr_rule")
_OF_TRAININGS = ("batches", "seeds", "train_workers", "data_dir")


def check(config: BatchConfig) -> None:
    """Refuse what cannot be right.

    Raises:
        PacelineError: naming the flag.
    """
    if not config.targets:
        raise PacelineError("neither a run nor a task was named", hint="paceline plan batch --help has examples")
    config.check_fields()
    _ = config.goal
    if config.task is None:
        _check_runs(config)
    else:
        _check_task(config, config.task)


def _check_task(config: BatchConfig, task: str) -> None:
    from paceline.stats.hyperbola import LEAST_BATCHES  # numpy, which --help can do without

    _check_name(task)
    if config.goal is None:
        raise PacelineError(
            f"runs of {task} need a --target",
            why="what a batch costs is counted up to it",
            hint="--target accuracy=0.9",
        )
    if config.confirm:
        raise PacelineError("--confirm is of a run", hint="the runs of a task say all by themselves; leave it out")
    check_target(task, config.goal)
    sizes = config.batch_sizes
    if sizes is not None and len(sizes) < LEAST_BATCHES:
        raise PacelineError(
            f"--batches {config.batches} holds {len(sizes)} sizes, and {LEAST_BATCHES} are needed",
            why="two numbers are fitted, and a third size has to show whether the formula holds",
            hint="over a wide range: --batches 32,128,512,2048",
        )


def _check_name(task: str) -> None:
    """Like `check_task_name`; but what was typed may have been meant as a run."""
    try:
        check_task_name(task)
    except PacelineError as error:
        if task.endswith(".py"):
            raise
        raise PacelineError(f"{task} is neither a run directory nor a task", hint=error.hint) from None


def _check_runs(config: BatchConfig) -> None:
    if len(config.targets) > 1 and config.goal is None:
        raise PacelineError(
            "several runs need a --target",
            why="they are compared by the steps that each took to it",
            hint="--target accuracy=0.9; or name one run, whose noise is looked at",
        )
    if config.confirm and len(config.targets) > 1:
        raise PacelineError("--confirm is of one run", hint="name the run whose checkpoint shall be branched")
    if config.confirm:
        _refuse_ignored(config, _OF_TASKS, "branches take rate and length from the run")
    else:
        _refuse_ignored(config, (*_OF_TASKS, *_OF_TRAININGS), "nothing is trained: the runs are as they are")


def _refuse_ignored(config: BatchConfig, names: Collection[str], why: str) -> None:
    """Refuse settings of trainings that are not made: silence would look as if they had been."""
    defaults = {f.name: f.default for f in fields(config)}
    given = [config.flag(name) for name in names if getattr(config, name) != defaults[name]]
    if given:
        raise PacelineError(
            f"{' and '.join(given)} would change nothing here",
            why=why,
            hint="leave it out; a task is trained at several batches, and a run with --confirm",
        )
