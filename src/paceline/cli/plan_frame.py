"""What the commands of `paceline plan` share: their run directory, its run.json, and how a result is shown."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

import paceline
from paceline.cli import signals
from paceline.cli.exits import numbers_first
from paceline.cli.run_directory import fresh_run, made_by, require_one_directory, resume_command
from paceline.records.errors import Exit, PacelineError
from paceline.records.plan_results import AnyPlan, read_plan, write_plan
from paceline.records.rundir import RunDir, read_info, run_lock, write_info
from paceline.records.schema import SCHEMA, RunInfo
from paceline.settings.declare import VerbSettings

if TYPE_CHECKING:
    from rich.console import Console

    from paceline.studies.trainings import Grid

Config = TypeVar("Config", bound=VerbSettings)


def open_plan(kind: str, name: str, config: Mapping[str, Any], run_dir: str | None, resume: str | None) -> RunDir:
    """The run directory of a plan, with its run.json; an older plan's where it is gone on with.

    Args:
        kind: batch, speed, data or trends.
        name: of the task.
        config: for run.json.
        run_dir: exactly this one; None makes one below runs/.
        resume: the directory of a plan of this kind.

    Raises:
        PacelineError: the directory holds a run already, or holds none to resume.
    """
    if resume is not None:
        _info_of(kind, resume)
        return RunDir(resume)
    run = fresh_run(run_dir, f"plan-{kind}-{name}")
    write_info(
        run,
        RunInfo(
            schema=SCHEMA,
            verb="plan",
            name=name,
            command=["paceline", *sys.argv[1:]],
            started_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            versions={"paceline": paceline.__version__, "python": platform.python_version()},
            config=dict(config),
            facts={"kind": kind},
        ),
    )
    return run


def _info_of(kind: str, path: str) -> RunInfo:
    """run.json of a plan; refuses what is no plan of this kind."""
    info = read_info(Path(path))
    if made_by(info) != f"plan {kind}":
        raise PacelineError(
            f"{path} is no plan of this kind",
            why=f"it was made by: paceline {made_by(info)}",
            hint=f"--resume takes a directory of paceline plan {kind}",
        )
    return info


def make_plan(kind: str, name: str, config: Any, answer: Callable[[RunDir], AnyPlan]) -> int:
    """Carry out a plan for which everything that can be refused has been: its directory, its result, and its card.

    When it is stopped, the command that resumes it is shown.

    Args:
        kind: batch, speed or data.
        name: of the task.
        config: its settings, a dataclass with `run_dir` and `format`, and with `resume` where a plan makes trainings.
        answer: makes the result; trainings stand in the directory.

    Returns:
        The exit code.
    """
    run = open_plan(kind, name, dataclasses.asdict(config), config.run_dir, getattr(config, "resume", None))
    with run_lock(run):
        try:
            write_plan(run, answer(run))
        except KeyboardInterrupt as stop:
            command = resume_command(f"plan {kind}", run)
            sys.stderr.write(f"\nstopped: what was trained is kept\n  next: {command}\n")
            return signals.exit_code(stop)
    show_plan(run, config.format)
    return int(Exit.OK)


def train_all(
    trainings: Grid, run: RunDir, task: str, format_: str, *, workers: str, data_dir: str | None
) -> dict[str, RunDir]:
    """Train what has not been trained yet, and show how far it has come.

    Args:
        trainings: of the plan.
        run: of the plan.
        task: of all trainings.
        format_: text or json.
        workers, data_dir: of all trainings; another call may have others.

    Returns:
        run directories by name.
    """
    from paceline.report.plan.plan_page import prepare_page
    from paceline.studies.trainings import carry_out

    shared = ["--workers", workers, *(["--data-dir", data_dir] if data_dir is not None else [])]
    with progress_of_trainings(len(trainings), format_) as tell, ThreadPoolExecutor(1) as beside:
        beside.submit(prepare_page)  # for the end, while the trainings run
        return carry_out(trainings.values(), run.path / "runs", task, shared, tell=tell)


def settled(kind: str, settings: type[Config], given: Mapping[str, Any]) -> Config:
    """The settings that were given, with those that the plan to be resumed had.

    Args:
        kind: of the plan.
        settings: their class.
        given: by field name, only what was given.

    Raises:
        PacelineError: there is no such plan, or a setting that decides the result was changed.
    """
    path = given.get("resume")
    if path is None:
        return settings(**given)
    stored = _info_of(kind, path).config
    require_one_directory(path, given)
    return settings.from_dict(stored).resumed_with(given)


def show_plan(run: RunDir, format_: str) -> None:
    """Write the page, and print the card; with json the result and nothing else.

    Args:
        run: holds a finished plan.
        format_: text or json.
    """
    from paceline.cli.card_layout import card_console, show
    from paceline.cli.cards import plan_card
    from paceline.report.plan.plan_page import write_plan_page

    result = read_plan(run.path)
    with numbers_first() as attempt:
        attempt(lambda: write_plan_page(run.path))
        if format_ == "json":
            sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
        else:
            show(card_console(), plan_card(result, run))


@contextlib.contextmanager
def progress_bar(what: str, otherwise: Callable[..., None] = lambda done, total: None) -> Iterator[Callable[..., None]]:
    """A bar on a terminal's stderr; what it gives is called with how much is done, of how much, and what goes on now.

    Args:
        what: in front of the bar.
        otherwise: what it gives where stderr is no terminal.
    """
    from paceline.cli.live import CountLine, LiveProgress

    console = _console()
    if not console.is_terminal:
        yield otherwise
        return
    with LiveProgress(console) as progress:
        yield CountLine(progress, what)


def _console() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False)


@contextlib.contextmanager
def progress_of_trainings(total: int, format_: str) -> Iterator[Callable[[int, int, str], None]]:
    """Which training runs: a bar on a terminal, else a line each; nothing with json."""
    if format_ == "json":
        yield lambda done, all_, what: None
        return
    console = _console()
    console.print(f"cost: {total} trainings; how long is known after the first")
    began = time.monotonic()
    before: int | None = None  # done by an earlier call, in time that nobody took

    def line(done: int, all_: int, what: str) -> None:
        nonlocal before
        before = done if before is None else before
        spent, here = time.monotonic() - began, done - before
        left = f", about {spent / here * (all_ - done) / 60:.0f} min left" if here and done < all_ else ""
        console.print(f"{done} of {all_} done{left}" + (f": {what}" if what else ""), soft_wrap=True)

    with progress_bar("trainings", line) as tell:
        yield tell
