"""Is it a task, or a run? Answered before torch is loaded and anything is started."""

from __future__ import annotations

import difflib
from pathlib import Path

from paceline.records.errors import PacelineError, choices
from paceline.records.rundir import RunDir
from paceline.tasks.table import BUILT_IN


def check_task_name(spec: str) -> None:
    """Refuse what is neither a built-in name nor an existing file.

    Raises:
        PacelineError: naming the legal values, and the nearest one.
    """
    if spec in BUILT_IN:
        return
    legal = f"built-in tasks: {choices(BUILT_IN)}; or the path of a Python file with a function task()"
    if not spec.endswith(".py"):
        close = difflib.get_close_matches(spec, BUILT_IN, n=1)
        meant = f"did you mean {close[0]}? " if close else ""
        raise PacelineError(f"unknown task {spec}", hint=meant + legal)
    if not Path(spec).is_file():
        raise PacelineError(f"there is no task file {spec}", hint=legal)


def is_run(target: str) -> bool:
    """Whether a target is a directory, and no built-in task that a directory happens to be called like."""
    path = Path(target)
    return path.is_dir() and (target not in BUILT_IN or RunDir(path).exists())
