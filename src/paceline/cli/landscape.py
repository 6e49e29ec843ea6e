"""`paceline landscape`: start a measurement of the loss around trained weights, show it, and say what came of it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from paceline.cli.options import command_from
from paceline.landscape.config import LandscapeConfig, check, for_resume, from_dict, is_run, to_dict
from paceline.records.errors import Exit, PacelineError
from paceline.records.rundir import RunDir, new_run_dir, read_info, run_lock
from paceline.tasks.names import check_task_name
from paceline.tasks.table import BUILT_IN

if TYPE_CHECKING:
    from paceline.cli.follow import Follower
    from paceline.launch.elastic import Ended
    from paceline.records.schema import RunInfo

HELP = """Measure the loss around trained weights: surface, eigenvalues, trace, sharpness.

With a second run, also the straight line between the two and its barrier.
"""


def run_landscape(given: dict[str, Any]) -> None:
    """Carry out `paceline landscape` with what the user gave; raises typer.Exit."""
    from paceline.cli.job import refuse_torchrun

    refuse_torchrun("paceline landscape")
    config, run = settle_request(given)
    raise typer.Exit(_launch(config, run))


COMMAND = command_from(LandscapeConfig, "target", run_landscape, HELP)


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
    if config.run_dir is not None:
        run = RunDir(config.run_dir)
        if run.exists():
            raise PacelineError(
                f"{run.path} already holds a run",
                hint=f"--resume {shlex.quote(str(run.path))} goes on with a measurement; or choose another --run-dir",
            )
        return config, run
    return config, new_run_dir(f"landscape-{name}")


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
    if given.get("run_dir") not in (None, str(run.path)):
        raise PacelineError(
            f"--resume {run.path} and --run-dir {given['run_dir']} name two directories", hint="leave --run-dir out"
        )
    info = read_info(run.path)
    if info.verb != "landscape":
        raise PacelineError(f"{run.path} is a run of paceline {info.verb}", hint=_resume_of_other(info, run))
    config = for_resume(from_dict(info.config), {**given, "resume": str(run.path), "run_dir": str(run.path)})
    check(config)
    _check_target(config)
    return config, run


def _resume_of_other(info: RunInfo, run: RunDir) -> str:
    """The command that resumes a run of another verb."""
    if info.verb == "run":
        return "paceline run starts a script anew; resuming is up to the script"
    verb = f"plan {info.facts.get('kind')}" if info.verb == "plan" else info.verb
    return f"paceline {verb} --resume {shlex.quote(str(run.path))}"


def _launch(config: LandscapeConfig, run: RunDir) -> int:
    import msgspec

    from paceline.cli.follow import Follower, console_for
    from paceline.cli.job import obtain_data, tidy, worker_environment
    from paceline.cli.landscape_progress import MeasureProgress
    from paceline.landscape.choices import HANDOVER

    console = console_for(config.format)
    with run_lock(run), tidy(run):
        task, data_dir = _task_of(config)
        obtain_data(task, data_dir)
        env, workers = worker_environment(config.workers)
        _try_task(config)
        handover = {
            "config": to_dict(config),
            "run_dir": str(run.path.absolute()),
            "command": ["paceline", *sys.argv[1:]],
        }
        env[HANDOVER] = msgspec.json.encode(handover).decode()
        with MeasureProgress(console) as progress, Follower(run, console, progress) as follower:
            from paceline.launch.elastic import Job, run_job

            ended = run_job(
                Job(
                    module="paceline.landscape.worker",
                    workers=workers,
                    logs=run.logs,
                    env=env,
                    stands=lambda: _stands(run),
                )
            )
        return _conclude(config, run, follower, ended)


def _try_task(config: LandscapeConfig) -> None:
    """As before a training, in one process; how a batch would be cut over workers is no matter here."""
    from paceline.cli.validate_task import try_task
    from paceline.landscape.subject import task_settings

    task, options, part = task_settings(config)
    settings = {"width": options.width, "data_dir": options.data_dir, "seed": part.seed}
    try_task(task, {**settings, "holdout": part.holdout, "train_samples": part.samples}, config.format)


def _task_of(config: LandscapeConfig) -> tuple[str, str | None]:
    if not is_run(config.target):
        return config.target, config.data_dir
    stored = read_info(Path(config.target)).config
    return str(stored.get("task")), config.data_dir or stored.get("data_dir")


def _resume_command(run: RunDir) -> str:
    return f"paceline landscape --resume {shlex.quote(str(run.path))}"


def _stands(run: RunDir) -> str:
    """What there is to go on from, and the command that does."""
    if not run.exists():
        return f"nothing had been computed\n  next: {shlex.join(['paceline', *sys.argv[1:]])}"
    return f"what was computed is kept\n  next: {_resume_command(run)}"


def _conclude(config: LandscapeConfig, run: RunDir, follower: Follower, ended: Ended) -> int:
    from paceline.cli.job import remove_litter, stopped_code

    code = stopped_code(ended, follower.end)
    if code is not None:
        sys.stderr.write(f"stopped: {_stands(run)}\n")
        remove_litter(run)
        return int(code)
    if ended.failures:
        from paceline.audits.job_failure import failure_of

        raise failure_of(ended, _resume_command(run) if run.exists() else "")
    from paceline.cli.result import show_landscape

    show_landscape(run, config.format)
    return int(Exit.OK)
