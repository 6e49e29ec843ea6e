"""What the commands of `paceline plan` share: their run directory, its run.json, and how a result is shown."""

from __future__ import annotations

import contextlib
import datetime
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import typer

import paceline
from paceline.cli import signals
from paceline.cli.exits import numbers_first
from paceline.cli.run_directory import fresh_run, made_by, require_one_directory, resume_command
from paceline.records.errors import PacelineError
from paceline.records.rundir import RunDir, read_info, write_info
from paceline.records.schema import SCHEMA, RunInfo
from paceline.settings.declare import VerbSettings

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


@contextlib.contextmanager
def to_be_resumed(kind: str, run: RunDir) -> Iterator[None]:
    """Around trainings: when they are stopped, the command that goes on with them is said.

    Raises:
        typer.Exit: with the exit code of a stopped job.
    """
    try:
        yield
    except KeyboardInterrupt as stop:
        command = resume_command(f"plan {kind}", run)
        sys.stderr.write(f"\nstopped: what was trained is kept\n  next: {command}\n")
        raise typer.Exit(signals.exit_code(stop)) from None


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
    from paceline.cli.report_plan import plan_card
    from paceline.records.plan_results import read_plan
    from paceline.report.plan.write import write_plan_page

    result = read_plan(run.path)
    with numbers_first() as attempt:
        attempt(lambda: write_plan_page(run.path))
        if format_ == "json":
            sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
        else:
            show(card_console(), plan_card(result, run))


@contextlib.contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal's stderr; what it gives is called with how much is done, and of how much."""
    from rich.console import Console

    from paceline.cli.live import CountLine, LiveProgress

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, total: None
        return
    with LiveProgress(console) as progress:
        yield CountLine(progress, what)


@contextlib.contextmanager
def progress_of_trainings(total: int, format_: str) -> Iterator[Callable[[int, int, str], None]]:
    """Which training runs: a bar on a terminal, else a line each; nothing with json."""
    from rich.console import Console

    from paceline.cli.live import CountLine, LiveProgress

    console = Console(stderr=True, highlight=False, markup=False)
    if format_ == "json":
        yield lambda done, all_, what: None
        return
    console.print(f"cost: {total} trainings; how long is known after the first")
    began = time.monotonic()
    before: int | None = None  # done by an earlier call, in time that nobody took

    def line(done: int, all_: int, what: str) -> None:
        nonlocal before
        before = done if before is None else before
        spent, here = time.monotonic() - began, done - before
        left = f", about {spent / here * (all_ - done) / 60:.0f} min left" if here and done < all_ else ""
        console.print(f"{done} of {all_} done{left}" + (f": {what}" if what else ""), soft_wrap=True)

    if not console.is_terminal:
        yield line
        return
    with LiveProgress(console) as progress:
        yield CountLine(progress, "trainings")
