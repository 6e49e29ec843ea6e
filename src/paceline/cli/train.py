"""`paceline train`: start a training job, show it, and say what came of it."""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
from typing import TYPE_CHECKING, Any

import typer

from paceline.checkpoint.manifest import standing
from paceline.cli import signals
from paceline.cli.job import obtain_data, remove_litter, stopped_code, tidy, worker_environment
from paceline.cli.options import command_from
from paceline.cli.train_request import settle_request, tensorboard_export
from paceline.records.errors import Exit
from paceline.records.rundir import RunDir, run_lock
from paceline.train.choices import SAVE_SIGNALS
from paceline.train.config import TrainConfig

if TYPE_CHECKING:
    from paceline.cli.follow import Follower
    from paceline.launch.elastic import Ended

HELP = """Train a task on every device of this machine and show the result.

A task is built in (digits, fashion-mnist ...) or a Python file with a function task(). The run directory holds
settings, events, checkpoints, logs and a report page.

Under torchrun, on one machine or several, the command joins the job instead of starting one:

    torchrun --nnodes 2 --nproc-per-node 8 ... -m paceline train digits
"""


def run_train(given: dict[str, Any]) -> None:
    """Carry out `paceline train` with what the user gave; ends the process or raises typer.Exit."""
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        from paceline.cli.train_joined import join

        join(given)
    config, run = settle_request(given)
    try:
        code = _launch(config, run)
    except KeyboardInterrupt as stop:  # typer would make a silent 130 of it, whatever the signal was
        sys.stderr.write(f"\n{signals.words(stop)}\n")
        raise typer.Exit(signals.exit_code(stop)) from None
    raise typer.Exit(code)


COMMAND = command_from(TrainConfig, run_train, HELP)


def _launch(config: TrainConfig, run: RunDir) -> int:
    from paceline.cli.follow import Follower, console_for

    console = console_for(config.format)
    with run_lock(run), tidy(run):
        obtain_data(config.task, config.data_dir)
        env, workers = _worker_environment(config, run)
        with tensorboard_export(config, run) as extra, Follower(run, console, extra) as follower:
            from paceline.launch.elastic import Job, run_job

            ended = run_job(
                Job(
                    module="paceline.train.worker",
                    workers=workers,
                    logs=run.logs,
                    env=env,
                    grace_s=config.grace,
                    save_signal=SAVE_SIGNALS[config.save_signal],
                    stands=lambda: what_stands(run),
                )
            )
        return _conclude(config, run, follower, ended)


def _worker_environment(config: TrainConfig, run: RunDir) -> tuple[dict[str, str], int]:
    """Variables for ranks, once their task has been tried; and how many ranks there are."""
    import msgspec

    from paceline.cli.validate_task import validate_task
    from paceline.parallel.placement import RankEnv
    from paceline.train.worker import HANDOVER, Handover

    env, workers = worker_environment(config.workers)
    validation = validate_task(config, RankEnv(0, 0, workers, workers, 1), run)
    handover = Handover(
        config=dataclasses.asdict(config),
        run_dir=str(run.path.absolute()),
        command=["paceline", *sys.argv[1:]],
        validation=validation,
    )
    env[HANDOVER] = msgspec.json.encode(handover).decode()
    return env, workers


def _conclude(config: TrainConfig, run: RunDir, follower: Follower, ended: Ended) -> int:
    code = stopped_code(ended, follower.end)
    if code is not None:
        agreed = follower.end is not None and follower.end.reason == "interrupted"
        if agreed and follower.end is not None:
            stands = f"checkpoint at step {follower.end.step:,}\n  next: {_resume_command(run)}"
        else:
            stands = f"no new checkpoint; {what_stands(run)}"
        sys.stderr.write(f"stopped: {stands}\n")
        remove_litter(run)
        return int(code)
    if ended.failure is not None:
        from paceline.audits.job_failure import failure_of

        raise failure_of(ended.failure, ended.logs, _resume_command(run) if run.exists() else "")
    _show_result(config, run)
    return int(Exit.OK)


def what_stands(run: RunDir) -> str:
    """What there is to go on from, and the command that does."""
    if not run.exists():
        return f"nothing was written yet\n  next: {shlex.join(['paceline', *sys.argv[1:]])}"
    there = standing(run.checkpoints)
    where = f"the newest checkpoint is of step {there[0].step:,}" if there else "there is no checkpoint yet"
    return f"{where}\n  next: {_resume_command(run)}"


def _resume_command(run: RunDir) -> str:
    return f"paceline train --resume {shlex.quote(str(run.path))}"


def _show_result(config: TrainConfig, run: RunDir) -> None:
    from paceline.cli.result import show_result

    show_result(run, config.format)
