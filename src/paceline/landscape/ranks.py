"""What the ranks of a measurement share: the directory of its parts, the request to stop, the events they write."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

from paceline.parallel.rank_context import StopRequest
from paceline.parallel.reduce import sum_over_ranks
from paceline.records.errors import Exit
from paceline.records.event import EndReason
from paceline.records.rundir import RunDir
from paceline.records.schema import End, Measuring, Note, Start
from paceline.records.writer import EventWriter

_PROGRESS_EVERY_S = 0.2


class Stopped(Exception):  # noqa: N818  it is no error
    """All ranks have agreed to stop; what was computed is kept."""

    def __init__(self, exit_code: Exit) -> None:
        super().__init__("stopped")
        self.exit_code = exit_code


class Recorder(EventWriter):
    """Writes the events of one rank, and has its clock.

    Args:
        run: where.
        rank: whose.
        world: ranks in the job.
        session: 1 for the first start, 2 for the first resume, ...
    """

    def __init__(self, run: RunDir, rank: int, world: int, session: int) -> None:
        super().__init__(run.events(rank))
        self._began = time.perf_counter()
        self.write(Start(session=session, time_unix_s=time.time(), world=world, step=0, pid=os.getpid()))

    def elapsed_s(self) -> float:
        """Since the session began."""
        return time.perf_counter() - self._began

    def end(self, reason: EndReason, exit_code: int, message: str = "") -> None:
        """Write the last event."""
        self.write(End(step=0, reason=reason, exit_code=int(exit_code), elapsed_s=self.elapsed_s(), message=message))


class Ranks:
    """This rank among those of a measurement, in whose process group it is.

    Args:
        parts: the directory that parts are kept in.
        stop: the request to stop that this rank has received, if any.
        recorder: gets this rank's events; None where nobody reads them.
        device: where the backend has its tensors.
    """

    def __init__(
        self,
        parts: Path,
        stop: StopRequest | None = None,
        recorder: Recorder | None = None,
        device: torch.device | None = None,
    ) -> None:
        self.parts = parts
        self.stop = stop or StopRequest()
        self.recorder = recorder
        self._device = device or torch.device("cpu")
        self._recorded_at = 0.0
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def pause(self) -> None:
        """Stop all ranks if any was told to; all of them call this together.

        Raises:
            Stopped: on every rank.
        """
        wishes = torch.tensor(self.stop.wishes(), dtype=torch.float64, device=self._device)
        terminate, interrupt = sum_over_ranks(wishes).tolist()
        if interrupt:
            raise Stopped(Exit.INTERRUPTED)
        if terminate:
            raise Stopped(Exit.TERMINATED)

    def note(self, message: str) -> None:
        """Record something that a person should know."""
        if self.recorder is not None:
            self.recorder.write(Note(message=message))

    def progress(self, measure: str, done: int, total: int, unit: str, shown: str = "") -> None:
        """Record progress, a few times a second at most; the first and the last in any case."""
        if self.recorder is None:
            return
        now = time.perf_counter()
        if 0 < done < total and now - self._recorded_at < _PROGRESS_EVERY_S:
            return
        self._recorded_at = now
        elapsed_s = self.recorder.elapsed_s()
        self.recorder.write(
            Measuring(measure=measure, done=done, total=total, unit=unit, elapsed_s=elapsed_s, shown=shown)
        )
