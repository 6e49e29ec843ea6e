"""The run directory of a verb: a new one, or that of a run to be resumed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline.records.errors import PacelineError
from paceline.records.rundir import RunDir, new_run_dir, read_info
from paceline.records.schema import RunInfo


def fresh_run(run_dir: str | None, name: str, hint: str = "choose another --run-dir") -> RunDir:
    """The directory of --run-dir, else a new one below runs/.

    Raises:
        PacelineError: it holds a run.
    """
    if run_dir is None:
        return new_run_dir(name)
    run = RunDir(run_dir)
    if run.exists():
        raise PacelineError(f"{run.path} already holds a run", hint=hint)
    return run


def require_one_directory(path: str | Path, given: Mapping[str, Any]) -> None:
    """Refuse --resume and --run-dir that name different directories."""
    run_dir = given.get("run_dir")
    if run_dir is not None and Path(run_dir).resolve() != Path(path).resolve():
        raise PacelineError(f"--resume {path} and --run-dir {run_dir} name two directories", hint="leave --run-dir out")


def run_to_resume(run: RunDir, given: Mapping[str, Any], verb: str) -> RunInfo:
    """run.json of a run that --resume names.

    Raises:
        PacelineError: there is none, it is another verb's, or --run-dir names another directory.
    """
    require_one_directory(run.path, given)
    info = read_info(run.path)
    if info.verb != verb:
        other = "paceline run starts a script anew; resuming is up to the script"
        hint = other if info.verb == "run" else resume_command(made_by(info), run)
        raise PacelineError(f"{run.path} is a run of paceline {info.verb}", hint=hint)
    return info


def made_by(info: RunInfo) -> str:
    """The command that made a run: `train`, `plan batch`."""
    return f"plan {info.facts.get('kind')}" if info.verb == "plan" else info.verb


def resume_command(verb: str, run: RunDir) -> str:
    """The command that resumes a run."""
    return f"paceline {verb} --resume {shlex.quote(str(run.path))}"
