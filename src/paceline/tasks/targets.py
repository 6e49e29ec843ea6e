"""Targets that a task can reach: the metrics of built-in tasks and their ranges. Never imports torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from paceline.records.errors import PacelineError, choices
from paceline.records.target import Target
from paceline.tasks.table import BUILT_IN


@dataclass(frozen=True)
class Reach:
    """Values of a metric that a training can reach, and that not every model has: low < value <= high."""

    low: float
    high: float = math.inf

    def __str__(self) -> str:
        return f"{self.low:g} < value" + ("" if self.high == math.inf else f" <= {self.high:g}")


FRACTION = Reach(0.0, 1.0)
"""Of an accuracy."""
POSITIVE = Reach(0.0)
"""Of the loss of every built-in task, a cross entropy or a squared error of noisy data."""


def check_target(task: str, target: Target) -> None:
    """Refuse a target that a built-in task does not measure or can never reach; of other tasks nothing is known here.

    Raises:
        PacelineError: naming the metrics, or the range.
    """
    if task in BUILT_IN:
        require_reachable(task, target, {"loss": POSITIVE, **dict.fromkeys(BUILT_IN[task].metrics, FRACTION)})


def require_reachable(task: str, target: Target, reaches: Mapping[str, Reach | None]) -> None:
    """Refuse a metric that is not measured, or a value outside of its range.

    Args:
        task: its name.
        target: of --target.
        reaches: the range of each metric; None where nothing is known of it.

    Raises:
        PacelineError: naming the metrics, or the range, and the fraction where a percentage was given.
    """
    if target.metric not in reaches:
        raise PacelineError(
            f"--target {target.metric} is not measured by the task {task}", hint=f"it measures: {choices(reaches)}"
        )
    reach = reaches[target.metric]
    if reach is None or reach.low < target.value <= reach.high:
        return
    percent = reach is FRACTION and 2 <= target.value <= 100
    meant = f"did you mean {target.metric}={target.value / 100:.4g}? " if percent else ""
    never = target.value > reach.high or reach is POSITIVE
    raise PacelineError(
        f"--target {target.metric}={target.value:g} {'can never be reached' if never else 'is reached by every model'}",
        why=f"{target.metric} is a fraction" if reach is FRACTION else f"{target.metric} is above 0",
        hint=f"{meant}legal: {reach}",
    )
