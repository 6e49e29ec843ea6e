"""What a rank writes down while it measures."""

from __future__ import annotations

import os
import time

from paceline.records.event import Event
from paceline.records.rundir import RunDir
from paceline.records.schema import End, Measured, Measuring, Note, Start
from paceline.records.writer import EventWriter


class Recorder:
    """Events of one rank, and its clock.

    Args:
        run: where.
        rank: whose.
        world: ranks in the job.
        session: 1 for the first start, 2 for the first resume, ...
    """

    def __init__(self, run: RunDir, rank: int, world: int, session: int) -> None:
        self.writer = EventWriter(run.events(rank))
        self._began = time.perf_counter()
        self._now(Start(session=session, time_unix_s=time.time(), world=world, step=0, pid=os.getpid()))

    def elapsed_s(self) -> float:
        """Since the session began."""
        return time.perf_counter() - self._began

    def measuring(self, event: Measuring) -> None:
        """Progress."""
        self._now(event)

    def measured(self, event: Measured) -> None:
        """A measure ended."""
        self._now(event)

    def note(self, message: str) -> None:
        """Something a person should know."""
        self._now(Note(message=message))

    def end(self, event: End) -> None:
        """The last word."""
        self._now(event)

    def _now(self, event: Event) -> None:
        self.writer.write(event)
        self.writer.flush()
