"""Run one cell's command and make its record: from the run directory that it wrote, and from nothing else."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.harness import BENCH, environment
from bench.studies.cell import Cell
from paceline.records.errors import Exit, PacelineError
from paceline.records.landscape import read_result
from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir
from paceline.records.schema import Evaluation
from paceline.report.run_record import load_run
from paceline.report.summary import summarise

ROOT = BENCH.parent
SCHEMA = 1
PATIENCE_S = 45.0
"""How long a run has to end after Ctrl-C: its own grace is 30 s."""


def default_program() -> tuple[str, ...]:
    """The paceline that stands beside this Python."""
    return (str(Path(sys.executable).with_name("paceline")),)


def measure(study: str, cell: Cell, program: Sequence[str], data_dir: Path | None) -> dict[str, Any]:
    """Run the command of a cell and make its record.

    Raises:
        PacelineError: the command failed in another way than by diverging, or wrote no readable run.
        KeyboardInterrupt: it was interrupted; its run directory is gone.
    """
    for needed in cell.needs:
        if not RunDir(ROOT / needed).exists():
            raise PacelineError(f"{cell.name} needs the run {needed}, which is not there", hint="train that cell again")
    before = environment(source_changed=_source_changed())
    with _run_dir(cell) as run:
        command = [*program, *cell.command[1:], "--run-dir", str(run.path)]
        if data_dir is not None and cell.verb == "train":
            command += ["--data-dir", str(data_dir)]
        began = time.perf_counter()
        code, err = _call(command)
        duration_s = time.perf_counter() - began
        if code not in (Exit.OK, Exit.DIVERGED):
            raise _failed(cell, code, err)
        found = _training(run) if cell.verb == "train" else _measured(run)
    return {
        "schema": SCHEMA,
        "study": study,
        "setting": cell.setting,
        "seed": cell.seed,
        "kind": cell.kind,
        "command": cell.command,
        "started_at": before.pop("measured_at"),
        "duration_s": round(duration_s, 3),
        **found,
        "machine": before,
    }


@contextlib.contextmanager
def _run_dir(cell: Cell) -> Iterator[RunDir]:
    """Where the cell's run goes: a scratch directory, or the one to keep, which only a run that ended well leaves."""
    if cell.keep is None:
        with tempfile.TemporaryDirectory(prefix="paceline-study-", ignore_cleanup_errors=True) as scratch:
            yield RunDir(Path(scratch) / "run")
        return
    path = ROOT / cell.keep
    shutil.rmtree(path, ignore_errors=True)  # of a call that was stopped
    try:
        yield RunDir(path)
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise


def _call(command: Sequence[str]) -> tuple[int, str]:
    """Exit code and stderr; Ctrl-C ends the command too, and is raised when it has ended."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        _, err = process.communicate()
    except BaseException:
        _end(process)
        raise
    if process.returncode in (Exit.INTERRUPTED, Exit.TERMINATED, -signal.SIGINT, -signal.SIGTERM):
        raise KeyboardInterrupt  # the terminal sent it to both of us, and the command was faster
    return process.returncode, err


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.communicate(timeout=PATIENCE_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()
        process.wait()


def _failed(cell: Cell, code: int, err: str) -> PacelineError:
    return PacelineError(
        f"the cell {cell.name} ended with exit code {code}",
        why=err.strip()[-1500:],
        hint="finished cells are kept; the same command goes on with this one",
        exit_code=Exit.FAILED,
    )


def _source_changed() -> bool | None:
    """Whether the code that runs differs from its commit; new records do not count."""
    command = ["git", "status", "--porcelain", "--", "src"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return bool(done.stdout.strip()) if done.returncode == 0 else None


def _training(run: RunDir) -> dict[str, Any]:
    loaded = load_run(run.path)
    summary, info = summarise(loaded), loaded.info
    return {
        "versions": info.versions,
        "training": {
            "end": summary.status,
            "steps": summary.steps,
            "samples": summary.samples,
            "epochs": summary.epochs,
            "elapsed_s": summary.elapsed_s,
            "train_loss": summary.train_loss,
            "images_per_s": summary.throughput.median if summary.throughput else None,
            "global_batch": info.batch.global_batch if info.batch else None,
            "train_samples": info.task.train_samples if info.task else None,
            "eval_samples": info.task.eval_samples if info.task else None,
            "precision": info.precision,
            "used": {name: info.facts[name] for name in ("lr", "rule", "warmup_steps") if name in info.facts},
            "evaluations": [_evaluation(event) for event in EventStream(run.events()) if isinstance(event, Evaluation)],
        },
    }


def _evaluation(event: Evaluation) -> dict[str, Any]:
    values = {name: measure.value for name, measure in event.metrics.items()}
    return {
        "step": event.step,
        "epoch": event.epoch,
        "samples": event.samples,
        "elapsed_s": round(event.elapsed_s, 3),
        "duration_s": round(event.duration_s, 3),
        # JSON has no NaN; null says that it was no finite number.
        "metrics": {name: value if math.isfinite(value) else None for name, value in values.items()},
    }


def _measured(run: RunDir) -> dict[str, Any]:
    return {"result": msgspec.to_builtins(read_result(run))}


def as_bytes(record: Mapping[str, Any]) -> bytes:
    """The record as it is committed."""
    return json.dumps(record, indent=1, allow_nan=False).encode() + b"\n"
