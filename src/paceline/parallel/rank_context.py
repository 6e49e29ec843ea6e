"""One rank of a job of ours: its place and device, how it joins the others, how it is told to stop, how it leaves.

`run_as_rank` is the frame around every worker module. A rank draws nothing; a failure is left in torch elastic's error
file, where the launcher finds it.
"""

from __future__ import annotations

import datetime
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from paceline.parallel.exit import leave
from paceline.parallel.placement import Machine, Placement, RankEnv, place_rank, usable_cores
from paceline.records.errors import Exit, PacelineError

SAVE_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
"""Those that can ask for a checkpoint."""


@dataclass(frozen=True)
class RankContext:
    """The place, device and command of this rank.

    Attributes:
        env: its place in the job.
        placement: device and backend.
        device: its own.
        command: how the user started the job, for the record.
    """

    env: RankEnv
    placement: Placement
    device: torch.device
    command: list[str]


class StopRequest:
    """What this rank was asked to do. Handlers only set a flag, so they are safe at any moment.

    Until `install` is called there is nothing to save: SIGTERM and SIGINT end the rank at once, also while it waits for
    the others, and a save signal stays pending.

    Attributes:
        terminate: SIGTERM came.
        interrupt: SIGINT came.
        save: the save signal came since the last checkpoint.
    """

    def __init__(self) -> None:
        self.terminate = False
        self.interrupt = False
        self.save = False

    def end_at_once(self) -> None:
        """Let the kernel end this process on SIGTERM and SIGINT: Python's own handler waits for C++ to return."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)

    def install(self, save_signal: signal.Signals | None = None) -> None:
        """Take over SIGTERM, SIGINT and the save signal of this process; without one SIGUSR1 does nothing."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)
        if save_signal is not None:
            signal.signal(save_signal, self._note)
        elif signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:  # else the task has a use for it
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SAVE_SIGNALS)  # blocked by the launcher while this rank started

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame
        if number == signal.SIGTERM:
            self.terminate = True
        elif number == signal.SIGINT:
            self.interrupt = True
        else:
            self.save = True

    def wishes(self) -> tuple[float, float]:
        """Terminate, interrupt; 1 for yes."""
        return float(self.terminate), float(self.interrupt)

    def take_save(self) -> float:
        """1 where a checkpoint is asked for; asking is over with that."""
        asked, self.save = self.save, False
        return float(asked)


def run_as_rank(work: Callable[[StopRequest], int]) -> NoReturn:
    """Call `work` as this rank's whole life and leave with its exit code; failures are told to the launcher."""
    stop = StopRequest()
    stop.end_at_once()
    try:
        code = work(stop)
    except PacelineError as error:
        report_failure(error)
        sys.stderr.write(f"{error}\n")
        leave(error.exit_code)
    except BaseException as error:  # noqa: BLE001  # whatever it is, the launcher must hear of it
        report_failure(error)
        traceback.print_exc()
        leave(Exit.FAILED)
    leave(code)


def init_rank_context(command: list[str]) -> RankContext:
    """This rank's place and device.

    Raises:
        PacelineError: this process is no rank.
    """
    env = RankEnv.read(os.environ)
    if env is None:
        raise PacelineError("RANK and WORLD_SIZE are not set", hint="start it with paceline, or under torchrun")
    placement = place_rank(Machine(torch.cuda.device_count(), usable_cores()), env)
    if placement.device == "cuda":
        device = torch.device("cuda", env.local_rank)
        torch.cuda.set_device(device)
    else:
        device = torch.device("cpu")
        if "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(1)  # ranks whose threads spin on each other's cores were 100 times slower
    return RankContext(env, placement, device, command)


def join(context: RankContext, patience_s: float) -> None:
    """Make the process group.

    Args:
        context: this rank's.
        patience_s: how long ranks may wait for the slowest. A dead peer is noticed at once, by its closed connection.

    Raises:
        PacelineError: the ranks do not find each other.
    """
    device_id = context.device if context.device.type == "cuda" else None
    timeout = datetime.timedelta(seconds=patience_s)
    try:
        dist.init_process_group(context.placement.backend, timeout=timeout, device_id=device_id)
    except (RuntimeError, ValueError) as error:
        raise PacelineError(
            "the ranks cannot find each other",
            why=str(error).splitlines()[0],
            hint="check MASTER_ADDR and MASTER_PORT, and that the port is free and not filtered",
            exit_code=Exit.FAILED,
        ) from error


def last_line(error: BaseException) -> str:
    """An exception in one line, as at the end of its traceback."""
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def report_failure(error: BaseException) -> None:
    """Leave the failure where torch elastic looks for it, in the form that it knows, with our parts added."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path:
        return
    detail: dict[str, Any] = {
        "message": {
            "message": f"{type(error).__name__}: {error}",
            "extraInfo": {
                "py_callstack": "".join(traceback.format_exception(error)),
                "timestamp": str(int(time.time())),
            },
        },
        "time_unix_s": time.time(),
    }
    if isinstance(error, PacelineError):
        detail["paceline"] = {
            "what": error.what,
            "why": error.why,
            "hint": error.hint,
            "exit_code": error.exit_code,
        }
    try:
        Path(path).write_text(json.dumps(detail), encoding="utf-8")
    except OSError as problem:
        sys.stderr.write(f"could not write {path}: {problem}\n")
