"""One rank of a training job, started by the launcher.

The launcher hands over in the environment: PACELINE_TRAIN (`handover.py`). Nothing is drawn here; a failure is left in
torch elastic's error file.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any, NoReturn

import msgspec

from paceline.checkpoint.manifest import standing
from paceline.parallel.rank_context import StopRequest, init_rank_context, join, last_line, run_as_rank
from paceline.records.errors import Exit, PacelineError
from paceline.records.rundir import RunDir
from paceline.records.schema import End
from paceline.train.choices import SAVE_SIGNALS
from paceline.train.config import TrainConfig
from paceline.train.handover import HANDOVER, Handover
from paceline.train.job import Job
from paceline.train.loop import ALREADY_OVER, Outcome, train
from paceline.train.setup import build

PATIENCE_S = 600.0
"""Generous: evaluation and checkpoints of the slowest rank count against it."""


def run_rank(stop: StopRequest) -> int:
    """Join the process group, build the job, train; return the exit code."""
    handover = msgspec.json.decode(os.environ[HANDOVER], type=Handover)
    config = TrainConfig.from_dict(handover.config)
    context = init_rank_context(handover.command)
    join(context, max(PATIENCE_S, config.grace))
    job = build(config, context, RunDir(handover.run_dir), stop, handover.validation)
    return finish(job, SAVE_SIGNALS[config.save_signal])


def finish(job: Job, save: signal.Signals | None) -> int:
    """Train and write the last event, whatever happens."""
    recorder, progress = job.recorder, job.progress
    job.stop.install(save)  # from here on there is something to save
    try:
        over = progress.target_step is not None or progress.step >= job.timetable.schedule.total_steps
        if over and not progress.evaluation_due:
            recorder.note(ALREADY_OVER)
            outcome = Outcome("target" if progress.target_step is not None else "finished", Exit.OK)
        else:
            outcome = train(job)
        _end(job, outcome.reason, outcome.exit_code)
        return int(outcome.exit_code)
    except PacelineError as error:
        diverged = error.exit_code == Exit.DIVERGED
        _try_to_end(job, "diverged" if diverged else "failed", error.exit_code, error.what)
        if diverged:
            there = standing(recorder.run.checkpoints)
            error.hint += (
                f"; the checkpoint of step {there[0].step:,} is whole" if there else "; there is no checkpoint yet"
            )
        raise
    except BaseException as error:
        _try_to_end(job, "failed", Exit.FAILED, last_line(error))
        raise
    finally:
        recorder.close()


def _try_to_end(job: Job, reason: Any, code: int, message: str) -> None:
    with contextlib.suppress(PacelineError):  # a disk that refuses the event is not what ended the run
        _end(job, reason, code, message)


def _end(job: Job, reason: Any, code: int, message: str = "") -> None:
    event = End(
        step=job.progress.step,
        reason=reason,
        exit_code=int(code),
        elapsed_s=job.recorder.elapsed_s(),
        target_step=job.progress.target_step,
        message=message,
    )
    job.recorder.write(event)


def main(given: bytes) -> NoReturn:
    """The whole life of a rank."""
    del given
    run_as_rank(run_rank)
