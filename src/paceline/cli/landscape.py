"""`paceline landscape`: start a measurement of the loss around trained weights, show it, and say what came of it."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from pathlib import Path
from typing import Any

from paceline.cli.options import command_from
from paceline.cli.run_directory import fresh_run, run_to_resume
from paceline.landscape.config import LandscapeConfig, check
from paceline.records.errors import Exit, PacelineError
from paceline.records.rundir import RunDir, read_info, run_lock
from paceline.tasks.names import check_task_name, is_run
from paceline.tasks.table import BUILT_IN

HELP = """Measure the loss around trained weights: surface, eigenvalues, trace, sharpness.

With a second run, also the straight line between the two and its barrier.
"""


def run_landscape(given: dict[str, Any]) -> int:
    """Carry out `paceline landscape` with what the user gave, and return the exit code."""
    from paceline.cli.job import refuse_torchrun

    refuse_torchrun("paceline landscape")
    return _launch(*settle_request(given))


COMMAND = command_from(LandscapeConfig, run_landscape, HELP)


def settle_request(given: dict[str, Any]) -> tuple[LandscapeConfig, RunDir]:
    """From flags to a complete request: settings, and the directory that the measurement shall have.

    Raises:
        PacelineError: anything that can be known to be wrong before torch is loaded.
    """
    if "resume" in given:
        return _resume_of(RunDir(given["resume"]), given)
    if "target" not in given:
        raise PacelineError(
            "nothing to look at was named", hint=f"a run directory; or a task, of: {', '.join(BUILT_IN)}"
        )
    config = LandscapeConfig(**given)
    check(config)
    name = _check_target(config)
    hint = f"--resume {shlex.quote(str(config.run_dir))} goes on with a measurement; or choose another --run-dir"
    return config, fresh_run(config.run_dir, f"landscape-{name}", hint)


def _check_target(config: LandscapeConfig) -> str:
    """The name of what is looked at; refuses what is neither a run of `paceline train` nor a task."""
    if config.other is not None:
        _require_train(Path(config.other), "--with")
    path = Path(config.target)
    if is_run(config.target):
        return _require_train(path, "TARGET")
    if path.parent != Path() and path.suffix != ".py":
        raise PacelineError(f"there is no run directory {path}", hint="runs stand below runs/; or name a task")
    check_task_name(config.target)
    needs_run = [name for name in ("trajectory", "interpolation") if name in config.measures]
    if needs_run:
        raise PacelineError(
            f"--measure {needs_run[0]} needs a run, and {config.target} is a task",
            hint=f"paceline train {config.target} --keep 100, then paceline landscape RUN",
        )
    return path.stem


def _require_train(path: Path, flag: str) -> str:
    info = read_info(path)
    if info.verb != "train":
        raise PacelineError(
            f"{flag} {path} is a run of paceline {info.verb}",
            why="only runs of paceline train have weights that can be looked at",
        )
    return info.name


def _resume_of(run: RunDir, given: dict[str, Any]) -> tuple[LandscapeConfig, RunDir]:
    info = run_to_resume(run, given, "landscape")
    where = {"resume": str(run.path), "run_dir": str(run.path)}
    config = LandscapeConfig.from_dict(info.config).resumed_with({**given, **where})
    check(config)
    _check_target(config)
    return config, run


def _launch(config: LandscapeConfig, run: RunDir) -> int:
    import msgspec

    from paceline.cli.follow import console_for
    from paceline.cli.job import follow_job, obtain_data, tidy, what_next, worker_environment
    from paceline.cli.landscape_progress import MeasureProgress
    from paceline.landscape.choices import HANDOVER

    console = console_for(config.format)
    with run_lock(run), tidy(run):
        obtain_data(*_task_of(config))
        env, workers = worker_environment(config.workers)
        _try_task(config)
        handover = {
            "config": dataclasses.asdict(config),
            "run_dir": str(run.path.absolute()),
            "command": ["paceline", *sys.argv[1:]],
        }
        env[HANDOVER] = msgspec.json.encode(handover).decode()

        def stands() -> str:
            return what_next("landscape", run, "what was computed is kept", "nothing had been computed")

        with MeasureProgress(console) as progress:
            from paceline.launch.local_job import Job

            job = Job("paceline.landscape.worker:main", workers, run.logs, env, stands=stands)
            stopped = follow_job("landscape", job, run, console, progress, lambda end: stands())
        if stopped is not None:
            return stopped
        from paceline.cli.result import show_landscape

        show_landscape(run, config.format)
        return int(Exit.OK)


def _try_task(config: LandscapeConfig) -> None:
    """As before a training, in one process; how a batch would be cut over workers is no matter here."""
    from paceline.cli.validate_task import try_task
    from paceline.landscape.target import task_settings

    task, options, part = task_settings(config)
    settings = {"width": options.width, "data_dir": options.data_dir, "seed": part.seed}
    try_task(task, {**settings, "holdout": part.holdout, "train_samples": part.samples}, config.format)


def _task_of(config: LandscapeConfig) -> tuple[str, str | None]:
    if not is_run(config.target):
        return config.target, config.data_dir
    stored = read_info(Path(config.target)).config
    return str(stored.get("task")), config.data_dir or stored.get("data_dir")
