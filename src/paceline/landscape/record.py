"""What a rank writes down while it measures."""

from __future__ import annotations

import os
import time

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
        self.writer.write(Start(session=session, time_unix_s=time.time(), world=world, step=0, pid=os.getpid()))

    def elapsed_s(self) -> float:
        """Since the session began."""
        return time.perf_counter() - self._began

    def measuring(self, event: Measuring) -> None:
        """Progress."""
        self.writer.write(event)

    def measured(self, event: Measured) -> None:
        """A measure ended."""
        self.writer.write(event)

    def note(self, message: str) -> None:
        """Something a person should know."""
        self.writer.write(Note(message=message))

    def end(self, event: End) -> None:
        """The last word."""
        self.writer.write(event)
