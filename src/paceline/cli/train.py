"""`paceline train`: start a training job, show it, and say what came of it."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from paceline.checkpoint.manifest import standing
from paceline.cli import signals
from paceline.cli.job import obtain_data, remove_litter, stopped_code, tidy, worker_environment
from paceline.cli.options import command_from
from paceline.records.errors import Exit, PacelineError
from paceline.records.rundir import DEFAULT_ROOT, RunDir, new_run_dir, read_info, run_lock
from paceline.records.target import parse_target
from paceline.tasks.names import check_task_name
from paceline.tasks.table import BUILT_IN
from paceline.tasks.targets import check_target
from paceline.train.checks import check, check_takes_part, require_shared
from paceline.train.choices import save_signal
from paceline.train.config import TrainConfig, for_resume, from_dict, to_dict

if TYPE_CHECKING:
    from paceline.cli.follow import Follower
    from paceline.launch.elastic import Ended
    from paceline.report.tensorboard import TensorBoardExport

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


COMMAND = command_from(TrainConfig, "task", run_train, HELP)


def settle_request(given: dict[str, Any]) -> tuple[TrainConfig, RunDir]:
    """From flags to a complete request: settings, and the directory that the run shall have.

    Raises:
        PacelineError: anything that can be known to be wrong before torch is loaded.
    """
    resume = given.get("resume")
    if resume not in (None, "auto"):
        return _resume_of(RunDir(resume), given)
    if "task" not in given and resume is None:
        raise PacelineError("no task was named", hint=f"one of {', '.join(BUILT_IN)}, or a Python file with task()")
    if "task" in given:
        check_task_name(given["task"])
        _refuse_obvious(given)
    if resume == "auto":
        found = _newest_run(given)
        if found is not None:
            return _resume_of(found, given)
        if "task" not in given:
            raise PacelineError("there is no run to resume", hint="name the task to start a new one")
    config = TrainConfig(**given)
    check(config)
    check_takes_part(given)
    if config.run_dir is not None:
        run = RunDir(config.run_dir)
        if run.exists() and resume is None:
            raise PacelineError(
                f"{run.path} already holds a run",
                hint="--resume auto goes on with it; or choose another --run-dir",
            )
        return config, run
    return config, new_run_dir(Path(config.task).stem)


def _resume_of(run: RunDir, given: dict[str, Any]) -> tuple[TrainConfig, RunDir]:
    if "run_dir" in given and Path(given["run_dir"]).resolve() != run.path.resolve():
        raise PacelineError(
            f"--resume {run.path} and --run-dir {given['run_dir']} name two directories", hint="leave --run-dir out"
        )
    info = read_info(run.path)
    if info.verb != "train":
        raise PacelineError(f"{run.path} is a run of paceline {info.verb}", hint="only paceline train can resume it")
    config = for_resume(from_dict(info.config), {**given, "resume": str(run.path), "run_dir": str(run.path)})
    check_task_name(config.task)
    check(config)
    return config, run


def _newest_run(given: dict[str, Any]) -> RunDir | None:
    """Where `--resume auto` looks: --run-dir, else the newest run of the task."""
    if "run_dir" in given:
        run = RunDir(given["run_dir"])
        return run if run.exists() else None
    for path in sorted(DEFAULT_ROOT.glob("*/run.json"), reverse=True):
        with contextlib.suppress(PacelineError):
            info = read_info(path.parent)
            if info.verb == "train" and given.get("task") in (None, info.config.get("task")):
                return RunDir(path.parent)
    return None


def _refuse_obvious(given: dict[str, Any]) -> None:
    """What is wrong for certain, before torch is loaded: the rest is found when the task is tried."""
    workers, batch = given.get("workers", "auto"), given.get("global_batch")
    if batch is None and given["task"] in BUILT_IN:
        batch = BUILT_IN[given["task"]].defaults.global_batch
    if workers.isdecimal() and batch is not None and batch > 0:
        require_shared(batch, int(workers), max(1, given.get("accumulate", 1)))
    if given.get("target") is not None:
        check_target(given["task"], parse_target(given["target"]))


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
                    save_signal=save_signal(config.save_signal),
                    stands=lambda: what_stands(run),
                )
            )
        return _conclude(config, run, follower, ended)


def _worker_environment(config: TrainConfig, run: RunDir) -> tuple[dict[str, str], int]:
    """Variables for ranks, once their task has been tried; and how many ranks there are."""
    import msgspec

    from paceline.cli.task_validation import validate_task
    from paceline.parallel.placement import RankEnv
    from paceline.train.worker import HANDOVER, Handover

    env, workers = worker_environment(config.workers)
    validation = validate_task(config, RankEnv(0, 0, workers, workers, 1), run)
    handover = Handover(
        config=to_dict(config),
        run_dir=str(run.path.absolute()),
        command=["paceline", *sys.argv[1:]],
        validation=validation,
    )
    env[HANDOVER] = msgspec.json.encode(handover).decode()
    return env, workers


@contextlib.contextmanager
def tensorboard_export(config: TrainConfig, run: RunDir) -> Iterator[TensorBoardExport | None]:
    """What writes TensorBoard's events into the run directory, where that was asked for."""
    if not config.tensorboard:
        yield None
        return
    from paceline.report.tensorboard import TensorBoardExport

    with contextlib.closing(TensorBoardExport(run.path / "tensorboard")) as export:
        yield export


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
    if ended.failures:
        raise _failure(ended, _resume_command(run) if run.exists() else "")
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


def _failure(ended: Ended, resume: str) -> PacelineError:
    from paceline.audits.job_failure import failure_of

    return failure_of(ended, resume)


def _show_result(config: TrainConfig, run: RunDir) -> None:
    from paceline.cli.result import show_result

    show_result(run, config.format)
