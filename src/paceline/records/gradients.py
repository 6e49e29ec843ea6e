"""Gradient norms of a run, put together from the files of all ranks."""

from __future__ import annotations

import re
from dataclasses import dataclass

from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir
from paceline.records.schema import GradientNorms

_FILE = re.compile(r"rank-(\d+)\.jsonl")


@dataclass(frozen=True)
class StepNorms:
    """One step.

    Attributes:
        step: 1 for the first.
        samples: of each group (a rank's micro-batch), in rank order.
        squares: squared norm of each group's mean gradient.
        reduced: squared norm of the mean gradient over all samples.
    """

    step: int
    samples: list[int]
    squares: list[float]
    reduced: float


def read_gradient_norms(run: RunDir) -> list[StepNorms]:
    """All steps for which every rank's norms are there and are finite numbers, in order.

    A rank that was killed may lack the last steps that others have; those are left out, as are steps that a later
    session did again.
    """
    found: dict[int, StepNorms] = {}
    batches: dict[int, int] = {}
    for path in sorted((run.path / "events").glob("rank-*.jsonl")):
        if not _FILE.fullmatch(path.name):
            continue
        for event in EventStream(path, only=GradientNorms):
            if not isinstance(event, GradientNorms):
                continue
            so_far = found.get(event.step, StepNorms(event.step, [], [], 0.0))
            nan = float("nan")
            squares = [nan if square is None else square for square in event.squares]
            reduced = nan if event.reduced is None else event.reduced
            found[event.step] = StepNorms(event.step, so_far.samples + event.samples, so_far.squares + squares, reduced)
            batches[event.step] = event.batch
    whole = (found[step] for step in sorted(found) if sum(found[step].samples) == batches[step])
    return [row for row in whole if all(value == value for value in (*row.squares, row.reduced))]
