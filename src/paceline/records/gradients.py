"""Gradient norms of a run, put together from the files of all ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir
from paceline.records.schema import GradientNorms, Start


@dataclass(frozen=True)
class StepNorms:
    """One step.

    Attributes:
        step: 1 for the first.
        samples: of each group (a rank's micro-batch), in rank order.
        squares: squared norm of each group's mean gradient.
        reduced: squared norm of the mean gradient over all samples.
        counts: what the loss counted in each group (tokens, weights), over which the means are; None where that is its
            samples, and in records of versions that did not write it.
    """

    step: int
    samples: list[int]
    squares: list[float]
    reduced: float
    counts: list[float] | None = None


def read_gradient_norms(run: RunDir) -> list[StepNorms]:
    """All steps for which every rank's norms are there and are finite numbers, in order.

    A rank that was killed may lack the last steps that others have; those are left out, as are steps that a later
    session did again.
    """
    sessions = _starts(run.events(0))
    found: dict[int, list[GradientNorms]] = {}
    for path in run.rank_events().values():
        # A rank that a later session did not have does not know that steps were done again.
        last = max((start.session for start in _starts(path)), default=0)
        until = min((start.step for start in sessions if start.session > last), default=math.inf)
        for event in EventStream(path, only=GradientNorms):
            if isinstance(event, GradientNorms) and event.step <= until:
                found.setdefault(event.step, []).append(event)
    rows = (_put_together(found[step]) for step in sorted(found))
    return [row for row in rows if row is not None]


def _starts(path: Path) -> list[Start]:
    if not path.exists():
        return []
    return [event for event in EventStream(path, superseded=True, only=Start) if isinstance(event, Start)]


def _put_together(parts: list[GradientNorms]) -> StepNorms | None:
    """One step from the parts of all ranks; None if one is missing or a norm was no finite number."""
    samples = [size for part in parts for size in part.samples]
    squares = [square for part in parts for square in part.squares if square is not None]
    reduced = parts[0].reduced
    if sum(samples) != parts[0].batch or len(squares) < len(samples) or reduced is None:
        return None
    counts = [count for part in parts for count in part.counts]
    return StepNorms(parts[0].step, samples, squares, reduced, counts if len(counts) == len(samples) else None)
