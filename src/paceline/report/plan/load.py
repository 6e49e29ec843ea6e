"""A plan as it stands on disk: run.json and result.json."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paceline.records.errors import PacelineError
from paceline.records.plan_results import AnyPlan, read_plan
from paceline.records.rundir import RunDir, read_info
from paceline.records.schema import RunInfo


@dataclass(frozen=True)
class LoadedPlan:
    """What a plan left behind.

    Attributes:
        path: its run directory.
        info: run.json.
        result: result.json.
    """

    path: Path
    info: RunInfo
    result: AnyPlan


def load_plan(path: Path | str) -> LoadedPlan:
    """Read a plan.

    Raises:
        PacelineError: not a run directory of this verb, without a result, damaged, or of a newer schema.
    """
    run = RunDir(path)
    info = read_info(run.path)
    if info.verb != "plan":
        raise PacelineError(f"{path} is a run of paceline {info.verb}, not of paceline plan")
    return LoadedPlan(run.path, info, read_plan(run.path))
