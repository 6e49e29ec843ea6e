"""What a rank writes down while it trains. Its only clock, so that all times of a run mean the same."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Literal

from paceline.records.event import CheckpointReason
from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir
from paceline.records.schema import (
    Checkpoint,
    End,
    Evaluation,
    GradientNorms,
    Measure,
    Note,
    Start,
    Step,
)
from paceline.records.writer import EventWriter


class Recorder:
    """Events of one rank.

    Args:
        run: where.
        rank: whose.
        world: ranks in the job.
    """

    def __init__(self, run: RunDir, rank: int, world: int) -> None:
        self.run = run
        self.rank = rank
        self.world = world
        self.writer = EventWriter(run.events(rank))
        self._began = 0.0
        self._before_s = 0.0
        self._said: set[str] = set()

    def start(self, session: int, step: int, elapsed_s: float) -> None:
        """The clock runs from here; `elapsed_s` is what earlier sessions spent."""
        self._began = time.perf_counter()
        self._before_s = elapsed_s
        self.writer.write(
            Start(
                session=session,
                time_unix_s=time.time(),
                world=self.world,
                step=step,
                resumed_from=step if session > 1 else None,
                elapsed_s=elapsed_s,
                pid=os.getpid(),
            )
        )

    def elapsed_s(self, now: float | None = None) -> float:
        """Seconds of training up to `now` (a `perf_counter` reading), earlier sessions included."""
        return self._before_s + (time.perf_counter() if now is None else now) - self._began

    def step(self, event: Step) -> None:
        """One optimizer step."""
        self.writer.write(event)

    def gradient_norms(self, event: GradientNorms) -> None:
        """Norms of one step."""
        self.writer.write(event)

    def has_evaluation(self, step: int) -> bool:
        """Whether an earlier session recorded the evaluation of this step."""
        return any(
            isinstance(event, Evaluation) and event.step == step
            for event in EventStream(self.run.events(self.rank), only=Evaluation)
        )

    def evaluation(self, step: int, epoch: float, samples: int, began: float, metrics: dict[str, Measure]) -> None:
        """One evaluation; `began` is a `perf_counter` reading."""
        now = time.perf_counter()
        self.writer.write(
            Evaluation(
                step=step,
                epoch=epoch,
                samples=samples,
                elapsed_s=self.elapsed_s(now),
                duration_s=now - began,
                metrics=metrics,
            )
        )

    def checkpoint(self, step: int, path: Path, began: float, size_bytes: int, reason: CheckpointReason) -> None:
        """One complete checkpoint."""
        now = time.perf_counter()
        self.writer.write(
            Checkpoint(
                step=step,
                path=str(path.relative_to(self.run.path)),
                duration_s=now - began,
                size_bytes=size_bytes,
                elapsed_s=self.elapsed_s(now),
                reason=reason,
            )
        )

    def note(self, message: str, level: Literal["info", "warning"] = "info") -> None:
        """Something a person should know."""
        self.writer.write(Note(message=message, level=level))

    def note_once(self, message: str) -> None:
        """As `note`, unless it has been said."""
        if message not in self._said:
            self._said.add(message)
            self.note(message)

    def end(self, event: End) -> None:
        """The last word."""
        self.writer.write(event)

    def close(self) -> None:
        """No more events follow."""
        self.writer.close()
