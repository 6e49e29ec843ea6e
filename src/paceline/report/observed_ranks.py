"""Events of the ranks of a job of `paceline run`, as columns.

Only the last attempt of a restarted job is kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from paceline.records.event import Event
from paceline.records.observed import StepTiming
from paceline.records.observed_rank import LoaderBegun, LoaderEnded, ObservedStep, ScriptEnded
from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir
from paceline.report.thin import number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.float64]

MOST_RANKS = 32
"""Ranks whose steps and loaders are read; of more, so many spread evenly."""
Pass = tuple[int, int]
"""Loader and pass over it."""


@dataclass
class OptimizerTrace:
    """Recorded steps of one optimizer of a rank, each column of shape (n,)."""

    step: list[float] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    """What backward was called on, without the loss scale; NaN where it was not looked at."""
    lr: list[float] = field(default_factory=list)
    """Of the first parameter group."""

    def add(self, event: ObservedStep) -> None:
        """One more step."""
        loss = number(event.loss)
        if event.loss_scale:
            loss /= event.loss_scale
        self.step.append(event.step)
        self.loss.append(loss)
        self.lr.append(event.lr[0] if event.lr else math.nan)


@dataclass
class ObservedRank:
    """What one rank recorded."""

    rank: int
    attempt: int = 1
    steps: int = 0
    """Optimizer steps, as far as they were recorded."""
    timed_step: list[float] = field(default_factory=list)
    elapsed_s: list[float] = field(default_factory=list)
    """Of the steps in `timed_step`, since the first step began."""
    optimizers: dict[int, OptimizerTrace] = field(default_factory=dict)
    begun: dict[Pass, LoaderBegun] = field(default_factory=dict)
    ended: dict[Pass, LoaderEnded] = field(default_factory=dict)
    end: ScriptEnded | None = None

    def take(self, event: Event) -> None:
        """One more event."""
        if isinstance(event, StepTiming | ObservedStep | ScriptEnded):
            self.steps = max(self.steps, event.step or 0)
        match event:
            case StepTiming(step=int(), elapsed_s=float()):
                self.timed_step.append(float(event.step or 0))
                self.elapsed_s.append(event.elapsed_s or 0.0)
            case ObservedStep():
                self.optimizers.setdefault(event.optimizer, OptimizerTrace()).add(event)
            case LoaderBegun():
                self.begun[event.loader, event.number] = event
            case LoaderEnded():
                self.ended[event.loader, event.number] = event
            case ScriptEnded():
                self.end = event

    def elapsed_at(self, steps: list[float]) -> Column:
        """Time of each step since the first one began; NaN where it was not taken."""
        known = dict(zip(self.timed_step, self.elapsed_s, strict=True))
        return np.array([known.get(step, math.nan) for step in steps])


@dataclass
class ObservedJob:
    """What all ranks recorded."""

    ranks: dict[int, ObservedRank] = field(default_factory=dict)
    """Those that were read."""
    recorded: int = 0
    """Ranks that left records."""
    samples: dict[int, int] = field(default_factory=dict)
    """That the training loop of each rank received, for ranks that ended in order and counted any."""
    remarks: list[str] = field(default_factory=list)
    """Torn, damaged and later lines of the files."""


def observed_job(run: RunDir) -> ObservedJob:
    """Read the event files of all ranks."""
    files = run.rank_events()
    ranks = sorted(files)
    chosen = ranks if len(ranks) <= MOST_RANKS else [ranks[i * len(ranks) // MOST_RANKS] for i in range(MOST_RANKS)]
    job = ObservedJob(recorded=len(ranks))
    for rank, path in files.items():
        found = ObservedRank(rank)
        stream = EventStream(path, superseded=True, only=None if rank in chosen else ScriptEnded)
        for event in stream:
            if not isinstance(event.attempt, msgspec.UnsetType) and event.attempt > found.attempt:
                found = ObservedRank(rank, event.attempt)
            found.take(event)
        job.remarks += stream.notes
        if rank in chosen:
            job.ranks[rank] = found
        if found.end is not None and found.end.samples:
            job.samples[rank] = found.end.samples
    return job


def mean_rates(rank: ObservedRank, most: int = 60) -> tuple[Column, Column, Column]:
    """Steps a second between recorded steps, pauses for evaluation and checkpoints included.

    Args:
        rank: whose steps were timed.
        most: stretches, each of at least 1/most of the time.

    Returns:
        The last step of each stretch, its time, and the steps a second in it.
    """
    if len(rank.timed_step) < 2:
        return (np.empty(0),) * 3
    least = (rank.elapsed_s[-1] - rank.elapsed_s[0]) / most
    rows = []
    step, at = rank.timed_step[0], rank.elapsed_s[0]
    for next_step, next_at in zip(rank.timed_step[1:], rank.elapsed_s[1:], strict=True):
        if next_at > at and next_at - at >= least:
            rows.append((next_step, next_at, (next_step - step) / (next_at - at)))
            step, at = next_step, next_at
    columns = np.array(rows, dtype=np.float64).reshape(-1, 3).T
    return columns[0], columns[1], columns[2]
