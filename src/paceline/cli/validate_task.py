"""Try a task in a process of its own before workers start, and say in one message what is wrong with it."""

from __future__ import annotations

import dataclasses
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from paceline.records.errors import Exit, PacelineError
from paceline.records.rundir import RunDir, write_atomic
from paceline.records.validation import Validation

if TYPE_CHECKING:
    from paceline.parallel.placement import RankEnv
    from paceline.pool.processes import ForkServer
    from paceline.pool.single_call import Died
    from paceline.tasks.description import TaskDescription
    from paceline.train.config import TrainConfig

_QUIET_S = 2.0
"""So long a validation says nothing; a download or large data take longer."""
_TAIL_LINES = 6


def validate_task(
    config: TrainConfig, env: RankEnv, run: RunDir | None, *, server: ForkServer, environment: Mapping[str, str]
) -> Validation:
    """Try the task of a training in a process of its own.

    Args:
        config: of the training.
        env: the place of its rank 0.
        run: where what the task printed is kept, as logs/validation.log; None keeps nothing.
        server: starts the process.
        environment: of the process.

    Raises:
        PacelineError: the task cannot be trained as asked, or ended the process that tried it.
    """
    from paceline.pool.single_call import Died, call_apart
    from paceline.train.handover import VALIDATION

    request = msgspec.json.encode((dataclasses.asdict(config), env))
    with tempfile.TemporaryFile() as output:
        with _StatusLine(config.format != "json") as line:
            found = call_apart(server, VALIDATION, request, output=output.fileno(), waiting=line.show, env=environment)
        if isinstance(found, Died):
            raise _death(found, _tail(output))
        validation = msgspec.json.decode(found, type=Validation)
        if validation.refusal is not None:
            raise validation.refusal.error()
        if run is not None:
            _keep(output, run.logs / "validation.log")
    return validation


def try_task(task: str, settings: Mapping[str, Any], format_: str, workers: str = "1") -> TaskDescription:
    """Try the task of a plan or a measurement before its first training.

    Args:
        task: a built-in name or a file.
        settings: of `TrainConfig` that reach into the task and its data.
        format_: of the verb; json keeps the status line away.
        workers: of the trainings, auto or a number.

    Returns:
        what its process found out about the task.

    Raises:
        PacelineError: see `validate_task`.
    """
    from paceline.launch.local_machine import cuda_devices, job_environment, job_server
    from paceline.parallel.placement import RankEnv, parse_workers, usable_cores
    from paceline.tasks.description import TaskDescription
    from paceline.train.config import TrainConfig

    count = parse_workers(workers) or cuda_devices() or usable_cores()
    # Batches of trainings are the business of their plan: here only one that can be shared.
    config = TrainConfig(task, global_batch=max(64, 2 * count), format=format_, **settings)
    device = "cuda" if cuda_devices() else "cpu"
    server, environment = job_server(device=device), job_environment(device)
    found = validate_task(config, RankEnv(0, 0, count, count, 1), None, server=server, environment=environment)
    return msgspec.convert(found.task, TaskDescription)


def forward_flop(task: str, data_dir: str | None, holdout: int) -> float | None:
    """FLOP of the forward pass of one sample of a task that was tried; None where they cannot be counted.

    Args:
        task: a built-in name or a file.
        data_dir: where its data are.
        holdout: samples of its training data that are evaluated on.
    """
    from paceline.launch.local_machine import job_environment, job_server
    from paceline.pool.single_call import call_apart

    function, request = "paceline.studies.flops:answer", msgspec.json.encode((task, data_dir, holdout))
    with tempfile.TemporaryFile() as output:
        found = call_apart(
            job_server(device="cpu"), function, request, output=output.fileno(), env=job_environment("cpu")
        )
    return msgspec.json.decode(found, type=float | None) if isinstance(found, bytes) else None


class _StatusLine:
    """On a terminal: what is tried, once that takes longer than two seconds."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted and sys.stderr.isatty()
        self._shown = ""

    def __enter__(self) -> _StatusLine:
        return self

    def __exit__(self, *of: object) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()

    def show(self, stage: str, seconds: float) -> None:
        """Draw or redraw the line."""
        text = f"trying the task in one process: {stage or 'starting'}, {seconds:.0f} s"
        if not self._wanted or seconds < _QUIET_S or text == self._shown:
            return
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\x1b[2K{text[:width]}")
        sys.stderr.flush()
        self._shown = text


def _death(died: Died, tail: str) -> PacelineError:
    """The message for a process that ended without an answer."""
    during = f"while {_DURING.get(died.stage, 'it started')}"
    if died.signal is None:
        how = f"ended the process itself with exit code {died.exit_code} {during}"
        hint = "look for os._exit() in the task and in what it imports"
        return PacelineError(f"the task {how}", why=tail, hint=hint, exit_code=Exit.FAILED)
    hint = {
        signal.SIGKILL: "it was killed, perhaps for memory: a smaller --global-batch or model, or more memory (dmesg "
        "says whether the kernel did it)",
        signal.SIGSEGV: "an extension that the task uses crashed: python -X faulthandler shows where",
    }.get(died.signal, "start it again; if it ends in the same way, look at what the task does there")
    return PacelineError(
        f"the process that tried the task ended by {died.signal.name} {during}",
        why=tail,
        hint=hint,
        exit_code=Exit.FAILED,
    )


_DURING = {
    "task()": "task() ran",
    "model": "model() built the model",
    "train_data": "a batch of train_data was made",
    "loss": "the loss of a batch was computed",
    "eval_data": "a batch of eval_data was made and its loss computed",
    "metrics": "the metrics were computed",
}


def _tail(output: IO[bytes]) -> str:
    """The last lines that were printed."""
    output.seek(0)
    lines = output.read()[-4000:].decode(errors="replace").splitlines()
    return "\n        ".join(line for line in lines[-_TAIL_LINES:] if line.strip())


def _keep(output: IO[bytes], path: Path) -> None:
    output.seek(0)
    if content := output.read():
        write_atomic(path, content)
