"""Append-only JSONL that survives a kill.

Every line is handed to the kernel as it is written, so whatever ends the process (an exception, SIGKILL, an abort, a
step that never returns), no event is lost, and at most one torn line is at the end. That costs one system call an
event, 1 to 4 µs. Reopening a file drops a torn line (it carries nothing) and goes on. A file has one writer; where it
has two by mistake, the kernel appends the lines of both.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from types import TracebackType

import msgspec

from paceline.records.event import Event
from paceline.records.rundir import make_dirs, write_error


class EventWriter:
    """Appends structs, one JSON object a line.

    Args:
        path: the file; made with its directories when missing.
        attempt: written into every event: which start of a restarted job this is, 2 for the first restart.

    Attributes:
        dropped_bytes: the size of a torn last line that was found and dropped, 0 if there was none.
    """

    def __init__(self, path: Path, attempt: int | msgspec.UnsetType = msgspec.UNSET) -> None:
        self.path = path
        self._attempt = attempt
        self._encoder = msgspec.json.Encoder()
        make_dirs(path.parent)
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            size = os.fstat(self._file).st_size
            whole = end_of_last_line(self._file, size)
            if whole < size:
                os.ftruncate(self._file, whole)
        except OSError as error:
            raise write_error(path, error) from error
        self.dropped_bytes = size - whole

    def write(self, event: msgspec.Struct) -> None:
        """Add one line: from here on it survives the death of this process.

        Raises:
            PacelineError: the disk is full; the file still ends with a whole line.
        """
        if self._attempt is not msgspec.UNSET and isinstance(event, Event):
            event = msgspec.structs.replace(event, attempt=self._attempt)
        data = self._encoder.encode(event) + b"\n"
        done = 0
        try:
            while done < len(data):
                done += os.write(self._file, data[done:])
        except OSError as error:
            # Leave whole lines only; what the disk refused is lost and said.
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, os.fstat(self._file).st_size - done)
            raise write_error(self.path, error) from error

    def close(self) -> None:
        """Close the file; further calls do nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> EventWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def end_of_last_line(handle: int, size: int, block: int = 64 * 1024) -> int:
    """Offset just behind the last newline, 0 when there is none."""
    end = size
    while end > 0:
        start = max(0, end - block)
        found = os.pread(handle, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
