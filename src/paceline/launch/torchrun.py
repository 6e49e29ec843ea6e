"""`paceline run`: torchrun's own parser and agent, with a run directory, tuned workers and a root-cause card around it.

The job itself is torch's: its parser reads the flags, its functions make the launch configuration, its agent starts
and watches the workers. Around that stand, in this order: checks that end in one message before anything is written,
the run directory, the workers' settings, the launch, and the card.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import shutil
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch.distributed import run as torchrun
from torch.distributed.elastic.multiprocessing import SignalException, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, record
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from paceline import __version__
from paceline.launch.attempts import watched_agent
from paceline.launch.capture import CapturedLogs
from paceline.launch.cause_card import as_record, draw
from paceline.launch.elastic import signal_behind
from paceline.launch.job_record import JobRecord, in_a_line, say
from paceline.launch.request import check, one_message, parse
from paceline.launch.rootcause import RankEnd, diagnose
from paceline.launch.stall import Script, read_script
from paceline.launch.tuning import Setting, cpu_settings, describe
from paceline.parallel.host import git_state
from paceline.records.errors import Exit, PacelineError
from paceline.records.rundir import RunDir, make_dirs, new_run_dir, run_lock, write_info
from paceline.records.schema import SCHEMA, End, RunInfo, Start
from paceline.records.writer import EventWriter

RUN_DIR_VARIABLE = "PACELINE_RUN_DIR"
"""Names the run directory, absolute, to every worker."""


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    Attributes:
        exit_code: torchrun's.
        reason: as in the `End` event.
        message: for people; "" when there is nothing to say.
        title: the same in a line, for the record.
    """

    exit_code: int
    reason: Literal["finished", "interrupted", "failed"]
    message: str = ""
    title: str = ""


def launch(argv: Sequence[str]) -> int:
    """Run a script on workers, as `torchrun` with the same arguments would.

    Args:
        argv: what follows `paceline run`.

    Returns:
        torchrun's exit code: 0, or 1 when a worker failed or a signal stopped the job.

    Raises:
        PacelineError: the request cannot be carried out; no worker was started.
    """
    args = parse(argv)
    workers, (_, most_nodes) = check(args)
    settings = _settings(args, workers)
    os.environ.update({each.name: each.value for each in settings})
    with one_message("cannot start the job"):
        dry = argparse.Namespace(**vars(args) | {"log_dir": os.devnull, "logs_specs": None})
        torchrun.config_from_args(dry)  # refuses what is wrong, and writes nothing
    run = _run_dir(args, most_nodes)
    os.environ[RUN_DIR_VARIABLE] = str(run.path.resolve())
    if args.log_dir is None:
        args.log_dir = str(run.logs)
    with run_lock(run) if most_nodes == 1 else nullcontext():
        _note_start(run, args, argv, settings, workers)
        with EventWriter(_event_file(run)) as events:
            say(f"paceline: run directory {run.path}; settings {describe(settings)}{_off(args, settings)}")
            outcome = _recorded(args, run, events, workers * most_nodes)
    if outcome.message:
        say(outcome.message)
    return outcome.exit_code


def _recorded(args: argparse.Namespace, run: RunDir, events: EventWriter, world: int) -> Outcome:
    """The launch between its two events."""
    started = time.monotonic()
    events.write(Start(session=1, time_unix_s=time.time(), world=world, step=0, pid=os.getpid()))
    try:
        outcome = _launch(args, run, events)
    except PacelineError as error:
        events.write(_end(Outcome(error.exit_code, "failed", str(error), error.what), started))
        raise
    events.write(_end(outcome, started))
    return outcome


def _end(outcome: Outcome, started: float) -> End:
    return End(
        step=0,
        reason=outcome.reason,
        exit_code=outcome.exit_code,
        elapsed_s=time.monotonic() - started,
        message=outcome.title,
    )


def _settings(args: argparse.Namespace, workers: int) -> tuple[Setting, ...]:
    if args.no_tuning:
        return ()
    # One worker keeps all threads, as under torchrun, which limits them only where there are several.
    threads = 1 if workers > 1 else None
    return cpu_settings(os.environ, threads=threads, allocator=not torch.accelerator.is_available())


def _run_dir(args: argparse.Namespace, most_nodes: int) -> RunDir:
    if args.run_dir is None:
        return new_run_dir(_name(args))
    run = RunDir(args.run_dir)
    # Several machines may share one file system; the first of them writes run.json.
    if run.exists() and most_nodes == 1:
        raise PacelineError(
            f"{run.path} holds a run already", hint="choose another --run-dir, or leave it out for a new one"
        )
    make_dirs(run.path)
    return run


def _name(args: argparse.Namespace) -> str:
    """The script's name without its folder and ending; a module's whole name."""
    return args.training_script if args.module else Path(args.training_script).stem


def _note_start(
    run: RunDir, args: argparse.Namespace, argv: Sequence[str], settings: Sequence[Setting], workers: int
) -> None:
    if run.exists():
        return
    config = {name: str(value) if isinstance(value, Path) else value for name, value in vars(args).items()}
    machine = {
        "host": socket.gethostname(),
        "cores": os.cpu_count(),
        "accelerators": torch.accelerator.device_count() if torch.accelerator.is_available() else 0,
        "workers_per_machine": workers,
        "machines": args.nnodes,
        "directory": str(Path.cwd()),
    }
    info = RunInfo(
        schema=SCHEMA,
        verb="run",
        name=_name(args),
        command=["paceline", "run", *argv],
        started_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        versions={"paceline": __version__, "python": platform.python_version(), "torch": str(torch.__version__)},
        config=config,
        git=git_state(),
        facts={
            "settings": {each.name: each.value for each in settings},
            "logs": args.log_dir,
            "max_restarts": args.max_restarts,
            "machine": machine,
        },
    )
    write_info(run, info)


def _event_file(run: RunDir) -> Path:
    """One file a launcher, also where two of them run on one machine."""
    host = socket.gethostname()
    for number in range(1, 1000):
        path = run.launcher_events(host if number == 1 else f"{host}-{number}")
        make_dirs(path.parent)
        try:
            path.touch(exist_ok=False)
        except FileExistsError:
            continue
        except OSError:
            return path  # the writer says why it cannot be written
        return path
    return run.launcher_events(f"{host}-{os.getpid()}")


def _launch(args: argparse.Namespace, run: RunDir, events: EventWriter) -> Outcome:
    """Hand the job to torch elastic and wait for its end."""
    config, command, arguments = _configuration(args)
    logs = config.logs_specs if isinstance(config.logs_specs, CapturedLogs) else None
    job = JobRecord(events, run.path, logs, _script(args), say)
    before: dict[signal.Signals, Any] = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        with one_message("torch's launcher failed; the script may not have run", exit_code=Exit.FAILED):
            _elastic(config, command, arguments, job)
    except ChildFailedError as failed:
        return _failed(job, failed, run, args)
    except (SignalException, KeyboardInterrupt, UnboundLocalError) as stopped:
        outcome = _interrupted(job, stopped)
        before = dict.fromkeys(_SIGNALS, signal.SIG_IGN)  # it ends at once in any case, with its record complete
        return outcome
    finally:
        if logs is not None:
            logs.stop()
        for number, handler in before.items():
            signal.signal(number, handler)
    return Outcome(Exit.OK, "finished", _history(job, run, args))


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def _script(args: argparse.Namespace) -> Script:
    if args.module or args.no_python:
        start = () if args.no_python else ("python", "-m")
        return Script(args.training_script, tuple(args.training_script_args), start=start)
    return read_script(args.training_script, args.training_script_args)


def _failed(job: JobRecord, failed: ChildFailedError, run: RunDir, args: argparse.Namespace) -> Outcome:
    cause = job.attempts[-1].cause if job.attempts else None
    if cause is None:
        ends = [RankEnd(rank, each.local_rank, each.pid, each.exitcode) for rank, each in failed.failures.items()]
        cause = as_record(diagnose(ends, None if args.log_dir == os.devnull else Path(args.log_dir)))
    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else None
    text = draw(cause, width=width)
    history = _history(job, run, args)
    return Outcome(Exit.FAILED, "failed", f"{history}\n{text}" if history else text, cause.title)


def _interrupted(job: JobRecord, stopped: BaseException) -> Outcome:
    """Stopped by a signal, perhaps while torch read a clock for its metrics (see `signal_behind`)."""
    number = getattr(stopped, "sigval", None)
    if isinstance(stopped, KeyboardInterrupt):  # before torch's handlers were in place
        number = signal.Signals(stopped.args[0] if stopped.args else signal.SIGINT)
    elif isinstance(stopped, UnboundLocalError):
        number = signal_behind(stopped)
    if number is None:
        raise stopped
    if not job.attempts:
        code = Exit.INTERRUPTED if number == signal.SIGINT else Exit.TERMINATED
        title = f"stopped by {number.name} before any worker ran"
        return Outcome(code, "interrupted", f"paceline: {title}", title)
    left = [each for each in job.attempts[-1].ranks if each.exit_code == 0 and not each.stopped]
    ranks = ", ".join(f"rank {each.rank} after {each.after_s or 0.0:.1f} s" for each in left)
    earlier = f"; with code 0 had already ended: {ranks}" if left else ""
    text = f"paceline: stopped by {number.name}, which the workers got too{earlier}"
    return Outcome(Exit.FAILED, "interrupted", text, f"stopped by {number.name}")


def _history(job: JobRecord, run: RunDir, args: argparse.Namespace) -> str:
    """The attempts, where there was more than one."""
    if len(job.attempts) < 2:
        return ""
    last = job.attempts[-1]
    whole = sum(each.outcome == "membership" for each in job.attempts) + args.max_restarts + 1
    how = "succeeded at" if last.outcome == "succeeded" else "failed at"
    lines = [f"paceline: {how} attempt {last.attempt} of {'at most ' if last.attempt < whole else ''}{whole}"]
    for each in job.attempts[:-1]:
        lines.append(f"  {in_a_line(each)}")
        if each.logs is not None:
            lines.append(f"    log {run.path / each.logs}")
    return "\n".join(lines)


@record
def _elastic(config: LaunchConfig, command: Any, arguments: list[str], job: JobRecord) -> None:
    with watched_agent(job):
        elastic_launch(config=config, entrypoint=command)(*arguments)


def _configuration(args: argparse.Namespace) -> tuple[LaunchConfig, Any, list[str]]:
    """torch's own configuration, with logs that keep a copy of stderr unless the user brings another plug-in."""
    if args.logs_specs is not None:
        return torchrun.config_from_args(args)
    quiet = argparse.Namespace(**vars(args) | {"log_dir": os.devnull})
    config, command, arguments = torchrun.config_from_args(quiet)
    ranks = {int(each) for each in args.local_ranks_filter.split(",")} if args.local_ranks_filter else None
    config.logs_specs = CapturedLogs(
        log_dir=args.log_dir,
        redirects=Std.from_str(args.redirects),
        tee=Std.from_str(args.tee),
        local_ranks_filter=ranks,
    )
    return config, command, arguments


def _off(args: argparse.Namespace, settings: Sequence[Setting]) -> str:
    return " (--no-tuning leaves them out)" if settings and not args.no_tuning else ""


def added_variables(settings: Sequence[Setting]) -> Mapping[str, str]:
    """The whole list of variables that workers have beyond torchrun's: each setting, and the run directory."""
    return {each.name: each.why for each in settings} | {RUN_DIR_VARIABLE: "where the run is recorded"}
