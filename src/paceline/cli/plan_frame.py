"""What the commands of `paceline plan` share: their run directory, its run.json, and how a result is shown."""

from __future__ import annotations

import contextlib
import datetime
import platform
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

import paceline
from paceline.records.errors import Exit, PacelineError
from paceline.records.rundir import RunDir, new_run_dir, read_info, write_info
from paceline.records.schema import SCHEMA, RunInfo


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
        info = read_info(Path(resume))
        if info.verb != "plan" or info.facts.get("kind") != kind:
            raise PacelineError(f"{resume} is no plan of this kind", hint=f"paceline plan {kind} --help")
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
        terminated = stop.args and stop.args[0] in (signal.SIGTERM, signal.SIGHUP)
        raise typer.Exit(int(Exit.TERMINATED if terminated else Exit.INTERRUPTED)) from None


def show_plan(run: RunDir, format_: str) -> None:
    """Write the page, and print the card; with json the result and nothing else.

    Args:
        run: holds a finished plan.
        format_: text or json.
    """
    from paceline.cli.report_plan import plan_card
    from paceline.records.plan import read_plan
    from paceline.report.plan.write import write_plan_page

    result = read_plan(run.path)
    write_plan_page(run.path)
    if format_ == "json":
        import msgspec

        sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
        return
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:  # a pipe has no width, and paths are better left whole there
        console = Console(highlight=False, markup=False, emoji=False, width=160)
    console.print(plan_card(result, run))


@contextlib.contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal's stderr; what it gives is called with how much is done, and of how much."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def resumed(kind: str, given: Mapping[str, Any], control: Sequence[str]) -> dict[str, Any]:
    """What was given, with what the plan to be resumed had; anything but `control` must be what it was.

    Raises:
        PacelineError: a setting that decides the result was changed.
    """
    if given.get("resume") is None:
        return dict(given)
    stored = dict(read_info(Path(given["resume"])).config)
    for name, value in given.items():
        if name in (*control, "resume", "run_dir") or not value or stored.get(name) == value:
            continue
        flag = "--" + name.replace("_", "-")
        raise PacelineError(
            f"the plan to be resumed has {flag} {stored.get(name)}, not {value}",
            why="a resumed plan goes on with the settings that decide its result",
            hint=f"leave {flag} out, or start a new plan: paceline plan {kind}",
        )
    return {**stored, **{name: value for name, value in given.items() if value}}


@contextlib.contextmanager
def progress_of_trainings(total: int, format_: str) -> Iterator[Callable[[int, int, str], None]]:
    """Which training runs: a bar on a terminal, else a line each; nothing with json."""
    import time

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, highlight=False, markup=False)
    if format_ == "json":
        yield lambda done, all_, what: None
        return
    console.print(f"cost: {total} trainings; how long is known after the first")
    began = time.monotonic()

    def line(done: int, all_: int, what: str) -> None:
        spent = time.monotonic() - began
        left = f", about {spent / done * (all_ - done) / 60:.0f} min left" if 0 < done < all_ else ""
        console.print(f"{done} of {all_} done{left}" + (f": {what}" if what else ""), soft_wrap=True)

    if not console.is_terminal:
        yield line
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("trainings", total=total)
        yield lambda done, all_, what: progress.update(task, completed=done, total=all_, description=what or "done")
