"""`paceline train`: start a training job, show it, and say what came of it."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from paceline.checkpoint.manifest import standing
from paceline.cli.job import follow_job, obtain_data, tidy, what_next, worker_environment
from paceline.cli.options import command_from
from paceline.cli.run_directory import resume_command
from paceline.cli.timings import ENDED, LOADED, READ, SHOWN, TRIED, Timings
from paceline.cli.train_request import settle_request, tensorboard_export
from paceline.records.errors import Exit
from paceline.records.rundir import RunDir, run_lock
from paceline.train.choices import SAVE_SIGNALS
from paceline.train.config import TrainConfig
from paceline.train.handover import HANDOVER, RANK, Handover

if TYPE_CHECKING:
    from paceline.records.schema import End

HELP = """Train a task on every device of this machine and show the result.

A task is built in (digits, fashion-mnist ...) or a Python file with a function task(). The run directory holds
settings, events, checkpoints, logs and a report page.

Under torchrun, on one machine or several, the command joins the job instead of starting one:

    torchrun --nnodes 2 --nproc-per-node 8 ... -m paceline train digits
"""


def run_train(given: dict[str, Any]) -> int:
    """Carry out `paceline train` with what the user gave, and return the exit code."""
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        from paceline.cli.train_joined import join

        join(given)
    return _launch(*settle_request(given))


COMMAND = command_from(TrainConfig, run_train, HELP)


def _launch(config: TrainConfig, run: RunDir) -> int:
    from paceline.cli.follow import console_for

    timings = Timings()
    with run_lock(run), tidy(run), ThreadPoolExecutor(1) as beside:
        timings.mark(READ)
        prepared = beside.submit(_prepare_result)
        obtain_data(config.task, config.data_dir)
        env, workers = _worker_environment(config, run, timings)
        with tensorboard_export(config, run) as extra:
            from paceline.launch.local_job import Job

            job = Job(
                target=RANK,
                workers=workers,
                logs=run.logs,
                env=env,
                grace_s=config.grace,
                save_signal=SAVE_SIGNALS[config.save_signal],
                stands=lambda: _stands(run),
            )
            stopped = follow_job("train", job, run, console_for(config.format), extra, lambda end: _saved(run, end))
        if stopped is not None:
            return stopped
        timings.mark(ENDED)
        prepared.result()(run, config.format)
        timings.mark(SHOWN)
        if config.timings:
            sys.stderr.write(f"\n{timings.card(run)}\n")
        return int(Exit.OK)


def _prepare_result() -> Callable[[RunDir, str], None]:
    """Load what shows the result, while the fork server loads torch or the ranks train."""
    from paceline.cli.result import prepare_page, show_result

    prepare_page()
    return show_result


def _worker_environment(config: TrainConfig, run: RunDir, timings: Timings) -> tuple[dict[str, str], int]:
    """Variables for ranks, once their task has been tried; and how many ranks there are."""
    import msgspec

    from paceline.cli.validate_task import validate_task
    from paceline.parallel.placement import RankEnv
    from paceline.pool.processes import fork_server

    env, workers = worker_environment(config.workers)
    timings.mark(LOADED)
    place = RankEnv(0, 0, workers, workers, 1)
    validation = validate_task(config, place, run, server=fork_server(env), environment=env)
    timings.mark(TRIED)
    handover = Handover(
        config=dataclasses.asdict(config),
        run_dir=str(run.path.absolute()),
        command=["paceline", *sys.argv[1:]],
        validation=validation,
    )
    env[HANDOVER] = msgspec.json.encode(handover).decode()
    return env, workers


def _saved(run: RunDir, end: End | None) -> str:
    """What a training that was stopped has left; `end` is of ranks that agreed to stop."""
    if end is None:
        return f"no new checkpoint; {_stands(run)}"
    return f"checkpoint at step {end.step:,}\n  next: {resume_command('train', run)}"


def _stands(run: RunDir) -> str:
    there = standing(run.checkpoints)
    kept = f"the newest checkpoint is of step {there[0].step:,}" if there else "there is no checkpoint yet"
    return what_next("train", run, kept, "nothing was written yet")
