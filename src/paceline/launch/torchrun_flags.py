"""Read and check a request to `paceline run`: everything that can be refused before anything is written."""

from __future__ import annotations

import argparse
import math
import os
import shutil
import socket
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import torch
from torch.distributed import run as torchrun
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousError

from paceline.launch.flags import RECORDED_FROM, flags_before_script, since
from paceline.launch.hang_watch import LEAST_S
from paceline.records.errors import Exit, PacelineError

_TORCHRUN_PORT = 29500


def build_parser() -> argparse.ArgumentParser:
    """torch's own parser of torchrun's flags with ours added; a wrong flag is a PacelineError."""
    parser: argparse.ArgumentParser = torchrun.get_args_parser()
    parser.prog = "paceline run"
    parser.add_argument("--run-dir", type=Path, default=None)
    parser.add_argument("--no-tuning", action="store_true")
    parser.add_argument("--no-check", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--fail-on", choices=("error", "warning"), default=None)
    parser.add_argument("--stop-on-hang", action="store_true")
    parser.add_argument("--hang-patience", type=seconds, default=LEAST_S)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.error = _refuse  # type: ignore[method-assign]
    return parser


def seconds(text: str) -> float:
    """A duration above 0; argparse names this function where it is none."""
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError(text)
    return value


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Read the flags; PET_* variables are their defaults, as for torchrun."""
    parser = build_parser()
    known = {name for action in parser._actions for name in action.option_strings}
    for flag in flags_before_script(argv):
        if flag not in known and (newer := since(flag)):
            raise PacelineError(
                f"torch {torch.__version__} does not know {flag}",
                why=f"it came with torch {newer}",
                hint="update torch",
            )
    for action in parser._actions:
        # Older torch has 29500 as the parser's default (a PET_ variable would be text); ours is a free port, so it
        # must be seen whether one was given.
        if action.dest == "master_port" and action.default == _TORCHRUN_PORT:
            action.default = None
    with one_message("a PET_* variable has a wrong value"):
        return parser.parse_args(list(argv))


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
    if args.log_dir is not None and args.log_dir != os.devnull and Path(args.log_dir).is_file():
        raise PacelineError(f"{args.log_dir} is a file, not a directory", hint="name another --log-dir")
    if args.standalone or (
        args.rdzv_backend == "static" and not args.rdzv_endpoint and args.master_port is None and nodes[1] == 1
    ):
        _choose_meeting_point(args)
    elif nodes[1] == 1 or (args.rdzv_backend == "static" and args.node_rank == 0):
        _check_port(args)
    if args.master_port is None:
        args.master_port = _TORCHRUN_PORT
    return workers, nodes


def _choose_meeting_point(args: argparse.Namespace) -> None:
    """A port that is free, in the way that this torch's torchrun meets on one machine."""
    if args.standalone or torchrun.get_args_parser().get_default("master_port") is None:
        args.rdzv_backend, args.rdzv_endpoint, args.rdzv_id = "c10d", "localhost:0", str(uuid.uuid4())
        return
    # Older torch meets statically at a fixed port; the same, but a port that nobody has.
    with socket.socket() as probe:
        probe.bind(("", 0))
        args.master_port = probe.getsockname()[1]


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
    """Check that the port that this machine is to serve is free. Elsewhere torch finds out."""
    endpoint = args.rdzv_endpoint
    if args.rdzv_backend == "static" and not endpoint:
        endpoint = f"{args.master_addr}:{args.master_port or _TORCHRUN_PORT}"
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


@contextmanager
def one_message(what: str, *, exit_code: int = Exit.USAGE) -> Iterator[None]:
    """Turn a refusal of torch into one message instead of a traceback."""
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
