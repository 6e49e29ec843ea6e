"""What the commands of `paceline plan` share: their run directory, its run.json, and how a result is shown."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import platform
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import typer

import paceline
from paceline.cli import signals
from paceline.cli.exits import numbers_first
from paceline.records.errors import PacelineError
from paceline.records.rundir import RunDir, new_run_dir, read_info, write_info
from paceline.records.schema import SCHEMA, RunInfo

if TYPE_CHECKING:
    from paceline.cli.live import LiveProgress

Config = TypeVar("Config")
_ARGUMENTS = ("task", "targets")
"""Settings that are typed without a flag."""


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
    run = RunDir(run_dir) if run_dir is not None else new_run_dir(f"plan-{kind}-{name}")
    if run.exists():
        raise PacelineError(f"{run.path} already holds a run", hint="choose another --run-dir")
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
    made_by = f"plan {info.facts.get('kind')}" if info.verb == "plan" else info.verb
    if made_by != f"plan {kind}":
        raise PacelineError(
            f"{path} is no plan of this kind",
            why=f"it was made by: paceline {made_by}",
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
        command = f"paceline plan {kind} --resume {shlex.quote(str(run.path))}"
        sys.stderr.write(f"\nstopped: what was trained is kept\n  next: {command}\n")
        raise typer.Exit(signals.exit_code(stop)) from None


def resumed(kind: str, given: Mapping[str, Any], control: Sequence[str]) -> dict[str, Any]:
    """What was given, with what the plan to be resumed had; anything but `control` must be what it was.

    Args:
        kind: of the plan.
        given: by field name, only what was given; an empty list of `targets` is not.
        control: names of what may change, since no training depends on it.

    Raises:
        PacelineError: there is no such plan, or a setting that decides the result was changed.
    """
    path = given.get("resume")
    if path is None:
        return dict(given)
    stored = _info_of(kind, path).config
    if given.get("run_dir") is not None and Path(given["run_dir"]) != Path(path):
        raise PacelineError(
            f"--resume {path} and --run-dir {given['run_dir']} name two directories", hint="leave --run-dir out"
        )
    asked = {name: value for name, value in given.items() if name != "targets" or value}
    for name, value in asked.items():
        if name in (*control, "resume", "run_dir") or stored.get(name) == value:
            continue
        raise PacelineError(
            f"the plan to be resumed has {_typed(name, stored.get(name))}, not {_typed(name, value)}",
            why="a resumed plan goes on with the settings that decide its result",
            hint=f"leave that out, or start a new plan: paceline plan {kind}",
        )
    return {**stored, **asked}


def _typed(name: str, value: Any) -> str:
    """A setting as people type it."""
    if name in _ARGUMENTS:
        return f"{name.upper()} {' '.join(value) if isinstance(value, list) else value}"
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{flag}" if value else f"--no-{flag}"
    return f"no --{flag}" if value is None else f"--{flag} {value}"


def config_from(kind: type[Config], settings: Mapping[str, Any]) -> Config:
    """Settings as their dataclass.

    Args:
        kind: a dataclass, for instance DataConfig.
        settings: by field name, some of them perhaps from the run.json of a plan to be resumed.

    Raises:
        PacelineError: run.json holds settings that this version does not know, or values of another type.
    """
    unknown = sorted(set(settings) - {field.name for field in dataclasses.fields(kind)})  # type: ignore[arg-type]
    try:
        if unknown:
            raise msgspec.ValidationError(f"unknown to this version: {', '.join(unknown)}")
        return msgspec.convert(dict(settings), kind)
    except msgspec.ValidationError as error:
        raise PacelineError(
            "the settings of the plan cannot be read",
            why=str(error),
            hint="use the version of Paceline that wrote them (see versions in its run.json), or start a new plan",
        ) from error


def show_plan(run: RunDir, format_: str) -> None:
    """Write the page, and print the card; with json the result and nothing else.

    Args:
        run: holds a finished plan.
        format_: text or json.
    """
    from paceline.cli.card_layout import card_console, show
    from paceline.cli.cards import plan_card
    from paceline.records.plan_results import read_plan
    from paceline.report.plan.plan_page import write_plan_page

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

    from paceline.cli.live import LiveProgress

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, total: None
        return
    with LiveProgress(console) as progress:
        yield moving(progress, what)


def moving(progress: LiveProgress, name: str) -> Callable[..., None]:
    """A line of a display, which is called with how much is done, of how much, and what goes on now."""
    from paceline.cli.live import RecentRate, clock

    task, rate = progress.add_task(name, total=None), RecentRate()

    def move(done: int, total: int, what: str = "") -> None:
        rate.add(time.monotonic(), done)
        parts = [f"{done:,}/{total:,}", clock(rate.left_s(total)), what]
        progress.update(task, completed=done, total=total, parts=parts)

    return move


@contextlib.contextmanager
def progress_of_trainings(total: int, format_: str) -> Iterator[Callable[[int, int, str], None]]:
    """Which training runs: a bar on a terminal, else a line each; nothing with json."""
    from rich.console import Console

    from paceline.cli.live import LiveProgress

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
        move = moving(progress, "trainings")
        yield move
