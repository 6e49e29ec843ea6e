"""The record of one job: its attempts with their causes, written as they end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from paceline.launch.capture import CapturedLogs
from paceline.launch.hang_watch import HangWatch
from paceline.launch.output_compare import compare_output
from paceline.launch.rank_ends import Ends
from paceline.launch.stall import Script, StallWatch
from paceline.records.errors import PacelineError
from paceline.records.event import Event
from paceline.records.launched import Attempt, Cause
from paceline.records.writer import EventWriter

Judge = Callable[[Attempt, Path | None], Cause | None]
"""judge(failed attempt, directory of its logs) -> why, or None when no rank of this machine failed."""
_STALLED_GRACE_S = 5
"""What stands still because it was started wrongly has nothing to save."""


class JobRecord:
    """Takes what the agent tells, writes an event for each attempt, and says what users need to know at once.

    Args:
        writer: of this launcher's event file.
        run: the run directory.
        logs: of the workers; None when a plug-in of the user makes them.
        script: the user's.
        say: shows a line beside the workers' output.
        judge: says why an attempt failed.
        hangs: watches for hangs where ranks are observed.

    Attributes:
        attempts: those that have ended.
    """

    def __init__(
        self,
        writer: EventWriter,
        run: Path,
        logs: CapturedLogs | None,
        script: Script,
        say: Callable[[str], None],
        judge: Judge,
        hangs: HangWatch | None = None,
    ) -> None:
        self.attempts: list[Attempt] = []
        self._writer, self._run, self._logs, self._script = writer, run, logs, script
        self._say, self._judge = say, judge
        self._stall: StallWatch | None = None
        self._hangs = hangs
        if hangs is not None:
            hangs.write = self._written

    def started(self, pids: Mapping[int, int], world: int, ends: Callable[[], Ends]) -> None:
        """Workers run; `pids` by rank, `ends` gives the ends so far."""
        if self._hangs is not None:
            self._hangs.started(world)
        self._stall = StallWatch(pids, world, self._script, ends, self._say, covered=self._hangs_cover)

    def _hangs_cover(self) -> bool:
        return self._hangs is not None and self._hangs.covers

    def _written(self, event: Event) -> None:
        try:
            self._writer.write(msgspec.structs.replace(event, attempt=len(self.attempts) + 1))
        except PacelineError as error:  # a full disk does not end a job that runs
            self._say(f"paceline: a hang was not recorded: {error.what}")

    def grace_s(self) -> int | None:
        """Seconds that workers get after a signal; None for torch's own."""
        return _STALLED_GRACE_S if self._stall is not None and self._stall.own_ranks else None

    def stopping(self) -> None:
        """Workers are being told to stop."""
        if self._stall is not None:
            self._stall.silence()
        if self._hangs is not None:
            self._hangs.silence()

    def ended(self, attempt: Attempt, restarts_left: int | None) -> None:
        """All workers of this machine have ended.

        Args:
            attempt: without logs and cause.
            restarts_left: how often workers may still be started again after a failure; None when they are not now.
        """
        if self._stall is not None:
            self._stall.stop()
            self._stall = None
        folder = self._folder(moved=attempt.outcome == "membership")
        cause = None
        if attempt.outcome == "failed":
            cause = self._stopped_hang() or self._judge(attempt, folder)
        logs = self._below_run(folder) if folder is not None else None
        attempt = msgspec.structs.replace(attempt, logs=logs, cause=cause)
        self.attempts.append(attempt)
        try:
            self._writer.write(attempt)
            if folder is not None and (compared := compare_output(folder, [each.local_rank for each in attempt.ranks])):
                self._writer.write(compared)
        except PacelineError as error:  # a full disk does not end a job that runs
            self._say(f"paceline: the record of attempt {attempt.attempt} was not written: {error.what}")
        if restarts_left is not None:
            left = f" (restarts left: {restarts_left})" if cause is not None else ""
            self._say(f"paceline: {in_a_line(attempt)}; starting again{left}")

    def _stopped_hang(self) -> Cause | None:
        """The hang for which the ranks were ended: how they then died says nothing."""
        hang = self._hangs.ended if self._hangs is not None else None
        if hang is None:
            return None
        rank = next((each for each in hang.ranks if each.rank in (hang.out_of_step or hang.culprits)), hang.ranks[0])
        rows = [("ended", "by --stop-on-hang; the finding says where each rank was")]
        return Cause(kind="hang", title=hang.title, rank=rank.rank, rows=rows, place=rank.place)

    def _below_run(self, folder: Path) -> str:
        """Relative to the run directory where it is below it, so that the run can be moved."""
        run, folder = self._run.resolve(), folder.resolve()
        return str(folder.relative_to(run) if folder.is_relative_to(run) else folder)

    def _folder(self, *, moved: bool) -> Path | None:
        if self._logs is None:
            return None
        if moved:
            return self._logs.set_aside()
        self._logs.stop()
        return self._logs.attempt


def in_a_line(attempt: Attempt) -> str:
    """`attempt 1 failed after 7.3 s: rank 0 failed first: RuntimeError: crash once (train.py:46, in train)`."""
    text = f"attempt {attempt.attempt} {_OUTCOMES[attempt.outcome]} {attempt.duration_s:.1f} s"
    if attempt.cause is None:
        return text
    rows = dict(reversed(attempt.cause.rows))
    said = rows.get("raised", rows.get("ended", ""))
    place = f" ({rows['at']})" if "at" in rows and "raised" in rows else ""
    return f"{text}: {attempt.cause.title}: {said}{place}"


_OUTCOMES = {
    "succeeded": "succeeded after",
    "failed": "failed after",
    "interrupted": "was interrupted after",
    "membership": "ended because machines joined or left, after",
}
