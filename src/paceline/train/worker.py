"""One rank of a training job: `python -m paceline.train.worker`, started by the launcher or by torchrun.

The launcher hands over in the environment: PACELINE_TRAIN (settings, command, run directory, as JSON) and
PACELINE_LAUNCHER_PID. Nothing is drawn here; a failure is left in torch elastic's error file.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import torch
import torch.distributed as dist

from paceline.parallel.exit import die_with_parent, leave
from paceline.parallel.placement import Machine, RankEnv, place_rank, usable_cores
from paceline.records.errors import Exit, PacelineError
from paceline.records.rundir import RunDir
from paceline.records.schema import End
from paceline.train.config import TrainConfig, from_dict
from paceline.train.describe import Seat
from paceline.train.loop import Job, train
from paceline.train.setup import build
from paceline.train.stop import StopRequest

HANDOVER, LAUNCHER_PID = "PACELINE_TRAIN", "PACELINE_LAUNCHER_PID"


@dataclass(frozen=True)
class Handover:
    """What a launcher tells its ranks."""

    config: dict[str, Any]
    run_dir: str
    command: list[str]


def main() -> NoReturn:
    """Run this rank to its end."""
    launcher = os.environ.get(LAUNCHER_PID)
    if launcher is not None:
        die_with_parent(int(launcher))
    stop = StopRequest()
    stop.install()
    try:
        handover = msgspec.json.decode(os.environ[HANDOVER], type=Handover)
        code = run_rank(from_dict(handover.config), RunDir(handover.run_dir), handover.command, stop)
    except PacelineError as error:
        report_failure(error)
        sys.stderr.write(f"{error}\n")
        leave(error.exit_code)
    except BaseException as error:  # noqa: BLE001  # whatever it is, the launcher must hear of it
        report_failure(error)
        traceback.print_exc()
        leave(Exit.FAILED)
    leave(code)


def run_rank(config: TrainConfig, run: RunDir, command: list[str], stop: StopRequest) -> int:
    """Join the process group, build the job, train; return the exit code."""
    seat = take_seat(command)
    join(seat, config.grace)
    job = build(config, seat, run, stop)
    return finish(job)


def take_seat(command: list[str]) -> Seat:
    """This rank's place and device."""
    env = RankEnv.read(os.environ)
    if env is None:
        raise PacelineError("RANK and WORLD_SIZE are not set", hint="start it with paceline train, or under torchrun")
    placement = place_rank(Machine(torch.cuda.device_count(), usable_cores()), env)
    if placement.device == "cuda":
        device = torch.device("cuda", env.local_rank)
        torch.cuda.set_device(device)
    else:
        device = torch.device("cpu")
        if "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(1)  # ranks whose threads spin on each other's cores were 100 times slower
    return Seat(env, placement, device, command)


def join(seat: Seat, grace_s: float) -> None:
    """Make the process group.

    Its time limit is generous: evaluation and checkpoints of the slowest rank count against it. A dead peer is
    noticed at once, by its closed connection.
    """
    device_id = seat.device if seat.device.type == "cuda" else None
    timeout = datetime.timedelta(seconds=max(600.0, grace_s))
    try:
        dist.init_process_group(seat.placement.backend, timeout=timeout, device_id=device_id)
    except (RuntimeError, ValueError) as error:
        raise PacelineError(
            "the ranks cannot find each other",
            why=str(error).splitlines()[0],
            hint="check MASTER_ADDR and MASTER_PORT, and that the port is free and not filtered",
            exit_code=Exit.FAILED,
        ) from error


def finish(job: Job) -> int:
    """Train and write the last event, whatever happens."""
    recorder, progress = job.recorder, job.progress
    try:
        if progress.target_step is not None or progress.step >= job.schedule.total_steps:
            recorder.note("this run had already reached its end: nothing was left to do")
            recorder.end(_end(job, "target" if progress.target_step is not None else "finished", Exit.OK))
            return int(Exit.OK)
        outcome = train(job)
        recorder.end(_end(job, outcome.reason, outcome.exit_code))
        return outcome.exit_code
    except PacelineError as error:
        reason = "diverged" if error.exit_code == Exit.DIVERGED else "failed"
        if error.exit_code != Exit.CANNOT_WRITE:
            recorder.end(_end(job, reason, error.exit_code, error.what))
        raise
    finally:
        if sys.exc_info()[0] is None:
            recorder.close()


def _end(job: Job, reason: Any, code: int, message: str = "") -> End:
    return End(
        step=job.progress.step,
        reason=reason,
        exit_code=int(code),
        elapsed_s=job.recorder.elapsed_s(),
        target_step=job.progress.target_step,
        message=message,
    )


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


if __name__ == "__main__":
    main()
