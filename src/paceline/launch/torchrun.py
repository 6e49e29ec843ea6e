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
from paceline.launch.capture import CapturedLogs
from paceline.launch.request import check, one_message, parse
from paceline.launch.rootcause import Failure, card, diagnose
from paceline.launch.tuning import Setting, cpu_settings, describe
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
        message: for people; "" after success.
    """

    exit_code: int
    reason: Literal["finished", "interrupted", "failed"]
    message: str = ""


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
        started = time.monotonic()
        _note_start(run, args, argv, settings, workers * most_nodes)
        _say(f"paceline: run directory {run.path}; settings {describe(settings)}{_off(args, settings)}")
        try:
            outcome = _launch(args)
        except PacelineError as error:
            _note_end(run, Outcome(error.exit_code, "failed", str(error)), started)
            raise
        _note_end(run, outcome, started)
    if outcome.message:
        _say(outcome.message)
    return outcome.exit_code


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
    run: RunDir, args: argparse.Namespace, argv: Sequence[str], settings: Sequence[Setting], world: int
) -> None:
    if not run.exists():
        config = {name: str(value) if isinstance(value, Path) else value for name, value in vars(args).items()}
        info = RunInfo(
            schema=SCHEMA,
            verb="run",
            name=_name(args),
            command=["paceline", "run", *argv],
            started_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            versions={"paceline": __version__, "python": platform.python_version(), "torch": str(torch.__version__)},
            config=config,
            facts={"settings": {each.name: each.value for each in settings}, "logs": args.log_dir},
        )
        write_info(run, info)
    with EventWriter(run.events()) as writer:
        writer.write(Start(session=1, time_unix_s=time.time(), world=world, step=0, pid=os.getpid()))


def _note_end(run: RunDir, outcome: Outcome, started: float) -> None:
    end = End(
        step=0,
        reason=outcome.reason,
        exit_code=outcome.exit_code,
        elapsed_s=time.monotonic() - started,
        message=outcome.message,
    )
    with EventWriter(run.events()) as writer:
        writer.write(end)


def _launch(args: argparse.Namespace) -> Outcome:
    """Hand the job to torch elastic and wait for its end."""
    try:
        with one_message("torch's launcher failed; the script may not have run", exit_code=Exit.FAILED):
            _elastic(args)
    except ChildFailedError as failed:
        failures = [
            Failure(rank, each.local_rank, each.pid, each.exitcode, float(each.timestamp))
            for rank, each in failed.failures.items()
        ]
        cause = diagnose(failures, None if args.log_dir == os.devnull else Path(args.log_dir))
        return Outcome(Exit.FAILED, "failed", card(cause))
    except SignalException as stopped:
        return Outcome(
            Exit.FAILED, "interrupted", f"paceline: stopped by {stopped.sigval.name}, which the workers got too"
        )
    return Outcome(Exit.OK, "finished")


@record
def _elastic(args: argparse.Namespace) -> None:
    config, command, arguments = _configuration(args)
    try:
        elastic_launch(config=config, entrypoint=command)(*arguments)
    finally:
        if isinstance(config.logs_specs, CapturedLogs):
            config.logs_specs.stop()


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


def _say(text: str) -> None:
    """To people, beside the workers' own output."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def added_variables(settings: Sequence[Setting]) -> Mapping[str, str]:
    """The whole list of variables that workers have beyond torchrun's: each setting, and the run directory."""
    return {each.name: each.why for each in settings} | {RUN_DIR_VARIABLE: "where the run is recorded"}
