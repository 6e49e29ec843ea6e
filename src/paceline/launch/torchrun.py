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
import socket
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch.distributed import run as torchrun
from torch.distributed.elastic.multiprocessing import SignalException, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, record
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from paceline.launch.capture import CapturedLogs
from paceline.launch.flags import RECORDED_FROM, since
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
    reason: str
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
    with _one_message("cannot start the job"):
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
        outcome = _launch(args)
        end = End(step=0, reason=outcome.reason, exit_code=outcome.exit_code, elapsed_s=time.monotonic() - started,
                  message=outcome.message)  # fmt: skip
        with EventWriter(run.events()) as writer:
            writer.write(end)
    if outcome.message:
        _say(outcome.message)
    return outcome.exit_code


def build_parser() -> argparse.ArgumentParser:
    """torch's own parser of torchrun's flags with ours added; a wrong flag is a PacelineError."""
    parser: argparse.ArgumentParser = torchrun.get_args_parser()
    parser.prog = "paceline run"
    parser.add_argument("--run-dir", type=Path, default=None)
    parser.add_argument("--no-tuning", action="store_true")
    parser.error = _refuse  # type: ignore[method-assign]
    return parser


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Read the flags; PET_* variables are their defaults, as for torchrun."""
    for word in argv:
        if not word.startswith("-"):
            break
        newer = since(word)
        if newer and not any(word.split("=", 1)[0] in action.option_strings for action in build_parser()._actions):
            raise PacelineError(
                f"{word} is not known to torch {torch.__version__}",
                why=f"it came with torch {newer}",
                hint="update torch",
            )
    with _one_message("a PET_* variable has a wrong value"):
        return build_parser().parse_args(list(argv))


def check(args: argparse.Namespace) -> tuple[int, tuple[int, int]]:
    """Refuse what cannot work, before anything is written or started.

    Also chooses a free port where neither a port nor a meeting point was given and there is one machine.

    Returns:
        Workers on this machine, and the least and most machines.
    """
    try:
        workers = torchrun.determine_local_world_size(args.nproc_per_node)
    except (ValueError, RuntimeError) as error:
        raise _wrong("--nproc-per-node", args.nproc_per_node, str(error)) from None
    if workers < 1:
        raise _wrong("--nproc-per-node", args.nproc_per_node, "a job has at least one worker")
    try:
        nodes = torchrun.parse_min_max_nnodes(args.nnodes)
    except (ValueError, RuntimeError):
        raise PacelineError(f"--nnodes cannot be {args.nnodes}", hint="a number, or MIN:MAX") from None
    _check_script(args)
    if args.standalone or (
        args.rdzv_backend == "static" and not args.rdzv_endpoint and args.master_port is None and nodes[1] == 1
    ):
        args.rdzv_backend, args.rdzv_endpoint, args.rdzv_id = "c10d", "localhost:0", str(uuid.uuid4())
    elif nodes[1] == 1 or (args.rdzv_backend == "static" and args.node_rank == 0):
        _check_port(args)
    if args.master_port is None:
        args.master_port = 29500
    return workers, nodes


def _check_script(args: argparse.Namespace) -> None:
    script = args.training_script
    if args.module and not args.no_python:
        return  # looking a module up would import its packages here
    if args.no_python:
        if shutil.which(script) is None:
            raise PacelineError(f"there is no program {script}", hint="give a path to it, or drop --no-python")
        return
    path = Path(script)
    if not path.exists():
        raise PacelineError(
            f"there is no script {script}",
            why=f"looked in {Path.cwd()}" if not path.is_absolute() else "",
            hint="paceline run [FLAGS] SCRIPT [ARGUMENTS]; -m for a module",
        )
    if path.is_dir() and not (path / "__main__.py").exists():
        raise PacelineError(f"{script} is a directory", hint="name the script in it")


def _check_port(args: argparse.Namespace) -> None:
    """Whether the port that this machine is to serve is free. Elsewhere torch finds out."""
    endpoint = args.rdzv_endpoint
    if args.rdzv_backend == "static" and not endpoint:
        endpoint = f"{args.master_addr}:{args.master_port or 29500}"
    host, _, port = endpoint.rpartition(":")
    if host not in ("localhost", "127.0.0.1", "::1", "[::1]", socket.gethostname()) or not port.isdigit():
        return
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", int(port)))
    except (OSError, OverflowError) as error:
        raise PacelineError(
            f"port {port} cannot be used",
            why=getattr(error, "strerror", None) or str(error),
            hint="leave the port out: on one machine a free one is chosen",
        ) from None


def _settings(args: argparse.Namespace, workers: int) -> tuple[Setting, ...]:
    if args.no_tuning:
        return ()
    # One worker keeps all threads, as under torchrun, which limits them only where there are several.
    threads = 1 if workers > 1 else None
    return cpu_settings(os.environ, threads=threads, allocator=not torch.accelerator.is_available())


def _run_dir(args: argparse.Namespace, most_nodes: int) -> RunDir:
    if args.run_dir is None:
        return new_run_dir(Path(args.training_script).stem)
    run = RunDir(args.run_dir)
    # Several machines may share one file system; the first of them writes run.json.
    if run.exists() and most_nodes == 1:
        raise PacelineError(
            f"{run.path} holds a run already", hint="choose another --run-dir, or leave it out for a new one"
        )
    make_dirs(run.path)
    return run


def _note_start(
    run: RunDir, args: argparse.Namespace, argv: Sequence[str], settings: Sequence[Setting], world: int
) -> None:
    if not run.exists():
        config = {name: str(value) if isinstance(value, Path) else value for name, value in vars(args).items()}
        info = RunInfo(
            schema=SCHEMA,
            verb="run",
            name=Path(args.training_script).stem,
            command=["paceline", "run", *argv],
            started_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            versions={"python": platform.python_version(), "torch": torch.__version__},
            config=config,
            facts={"settings": {each.name: each.value for each in settings}, "logs": args.log_dir},
        )
        write_info(run, info)
    with EventWriter(run.events()) as writer:
        writer.write(Start(session=1, time_unix_s=time.time(), world=world, step=0, pid=os.getpid()))


def _launch(args: argparse.Namespace) -> Outcome:
    """Hand the job to torch elastic and wait for its end."""
    try:
        with _one_message("the job could not be started", exit_code=Exit.FAILED):
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


@contextmanager
def _one_message(what: str, *, exit_code: int = Exit.USAGE) -> Iterator[None]:
    """What torch refuses, as one message instead of a traceback."""
    try:
        yield
    except (ChildFailedError, SignalException):
        raise
    except (OSError, RuntimeError, ValueError, AssertionError, RendezvousError) as error:
        why = str(error).strip().splitlines()
        raise PacelineError(
            what,
            why=why[0] if why else type(error).__name__,
            hint="paceline run --help lists the flags",
            exit_code=exit_code,
        ) from error


def _refuse(message: str) -> NoReturn:
    raise PacelineError(
        message[:1].lower() + message[1:],
        hint=f"paceline run --help lists the flags (torchrun's of torch {RECORDED_FROM})",
    )


def _wrong(flag: str, value: object, why: str) -> PacelineError:
    return PacelineError(f"{flag} cannot be {value}", why=why, hint="a number from 1 on, auto, cpu, gpu or xpu")


def _off(args: argparse.Namespace, settings: Sequence[Setting]) -> str:
    return " (--no-tuning leaves them out)" if settings and not args.no_tuning else ""


def _say(text: str) -> None:
    """To people, beside the workers' own output."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def added_variables(settings: Sequence[Setting]) -> Mapping[str, str]:
    """The whole list of variables that workers have beyond torchrun's: each setting, and the run directory."""
    return {each.name: each.why for each in settings} | {RUN_DIR_VARIABLE: "where the run is recorded"}
