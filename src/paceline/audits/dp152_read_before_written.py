"""A rank reads a file that another rank may still be writing.

What it finds:
    A file that one rank writes and another reads with no collective in between.

Why it matters:
    The reader finds no file, half a file, or the one of an earlier run, and goes on with other weights or data than
    the writer.

Repair:
    `dist.barrier()` after the write and before the first read.

Known problems:
    Ranks that wait for each other through other means, as a lock file or polling, are recognized by lock files only.

References:
    F94. https://github.com/karpathy/nanochat/pull/336
"""

from __future__ import annotations

import itertools

from paceline.audits.audit import Audit
from paceline.audits.file_touches import Touch, is_event_file, is_log
from paceline.audits.run_state import RunState
from paceline.audits.wording import count_text
from paceline.records.event import Event
from paceline.records.observed_rank import FileTouched
from paceline.records.schema import Finding

_WRITES = ("write", "rename")


class ReadBeforeWritten(Audit):
    """Compares the collectives before a read with those before the write of another rank."""

    code, name, topic = "DP152", "read-before-written", "files"
    faults = ("F94",)
    needs = ("files", "collectives")

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._locked = False

    def feed(self, rank: int, event: Event) -> None:
        if isinstance(event, FileTouched) and event.path.endswith(".lock"):
            self._locked = True

    def findings(self) -> list[Finding]:
        found = [each for each in map(_race, self._shared()) if each is not None]
        if not found or self._locked:
            return []
        write, read = min(found, key=lambda each: (each[1].event.step, each[1].event.path))
        event = read.event
        return [
            self.finding(
                "warning",
                f"rank {read.rank} reads {event.path} at step {event.step}, and rank {write.rank} writes it at step "
                f"{write.event.step} with no collective in between; the reader may get an old file, or half of it",
                "call dist.barrier() on all ranks after the write and before the read",
                place=event.place,
                rank=read.rank,
                step=event.step,
                file=event.path,
                writer=write.rank,
                collectives={"read": event.collectives, "write": write.event.collectives},
            )
        ]

    def looked_at(self) -> str:
        files = len(self._shared())
        return f"{count_text(files, 'file')} that one rank writes and another reads" if files else ""

    def _shared(self) -> list[list[Touch]]:
        """Openings of files that one rank writes and another reads, without any by libraries."""
        found = []
        for touches in self.run.files.paths():
            own = [each for each in touches if each.event.place is not None]
            writers = {each.rank for each in own if each.event.mode in _WRITES}
            readers = {each.rank for each in own if each.event.mode == "read"}
            path = touches[0].event.path
            if len(writers) == 1 and readers - writers and not is_log(path) and not is_event_file(path):
                found.append(own)
        return found


def _race(touches: list[Touch]) -> tuple[Touch, Touch] | None:
    """The first write and read that nothing separates."""
    writes = [each for each in touches if each.event.mode in _WRITES]
    for read in (each for each in touches if each.event.mode == "read" and each.rank != writes[0].rank):
        for write in writes:
            if _unseparated(write, read, touches):
                return write, read
    return None


def _unseparated(write: Touch, read: Touch, touches: list[Touch]) -> bool:
    """No collective lies between, and the reader cannot have meant an older file.

    Counts are those of the default group; collectives of other groups, as a barrier over gloo, are counted where they
    were seen.
    """
    if write.event.step != read.event.step or read.seen > write.seen:
        return False
    if _older(write, touches):
        return False
    if read.event.collectives == write.event.collectives:
        return True
    earlier = [
        each
        for each in touches
        if each is not read
        and each.event.collectives < write.event.collectives
        and (each.event.mode in _WRITES or each.rank == read.rank)
    ]
    return read.event.step > 0 and read.event.collectives < write.event.collectives and not earlier


def _older(write: Touch, touches: list[Touch]) -> bool:
    """The writer itself had read the file before: it was there, as a checkpoint to resume from."""
    before = itertools.takewhile(lambda each: each is not write, touches)
    return any(each.rank == write.rank and each.event.mode == "read" for each in before)
