"""Turn the flags of `paceline train` into a complete request, before torch is loaded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.cli.run_directory import fresh_run, run_to_resume
from paceline.records.errors import PacelineError
from paceline.records.rundir import DEFAULT_ROOT, RunDir, read_info
from paceline.records.target import parse_target
from paceline.tasks.names import check_task_name
from paceline.tasks.table import BUILT_IN
from paceline.tasks.targets import check_target
from paceline.train.checks import check, check_takes_part, require_shared
from paceline.train.config import TrainConfig, for_resume

if TYPE_CHECKING:
    from paceline.report.tensorboard import TensorBoardExport


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
    hint = "--resume auto goes on with it; or choose another --run-dir"
    return config, fresh_run(config.run_dir, Path(config.task).stem, hint)


def _resume_of(run: RunDir, given: dict[str, Any]) -> tuple[TrainConfig, RunDir]:
    info = run_to_resume(run, given, "train")
    config = for_resume(
        TrainConfig.from_dict(info.config), {**given, "resume": str(run.path), "run_dir": str(run.path)}
    )
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
    """Refuse invalid requests before torch is loaded. Task validation finds the other problems."""
    workers, batch = given.get("workers", "auto"), given.get("global_batch")
    if batch is None and given["task"] in BUILT_IN:
        batch = BUILT_IN[given["task"]].defaults.global_batch
    if workers.isdecimal() and batch is not None and batch > 0:
        require_shared(batch, int(workers), max(1, given.get("accumulate", 1)))
    if given.get("target") is not None:
        check_target(given["task"], parse_target(given["target"]))


@contextlib.contextmanager
def tensorboard_export(config: TrainConfig, run: RunDir) -> Iterator[TensorBoardExport | None]:
    """Write TensorBoard events into the run directory if --tensorboard is set; yields None otherwise."""
    if not config.tensorboard:
        yield None
        return
    from paceline.report.tensorboard import TensorBoardExport

    with contextlib.closing(TensorBoardExport(run.path / "tensorboard")) as export:
        yield export
