"""A log file of bounded size: the beginning and the end of what was written.

Nothing is lost up to `limit` bytes. Beyond that the middle is cut out: the first `keep` bytes stay, one line says how
much is missing, and the newest bytes follow. One file, so that whoever reads its end needs to know nothing of this.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

LIMIT_BYTES = 32 * 1024 * 1024
KEEP_BYTES = 8 * 1024 * 1024
_CHUNK = 1 << 20


class BoundedLog:
    """Appends bytes. A failed write ends the log, never its writer.

    Args:
        path: the file; replaced when it exists.
        limit: the largest size in bytes.
        keep: bytes that stay at each end when the middle is cut out; at most a third of `limit`.
    """

    def __init__(self, path: Path, limit: int = LIMIT_BYTES, keep: int = KEEP_BYTES) -> None:
        self._limit, self._keep = limit, keep
        self._file = path.open("w+b", buffering=0)
        self._size = 0
        self._left_out = 0
        self._failed = False

    def write(self, data: bytes) -> None:
        """Append; silently nothing once the disk is full."""
        if self._failed:
            return
        try:
            for start in range(0, len(data), _CHUNK):
                self._append(data[start : start + _CHUNK])
        except OSError:
            self._failed = True

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(OSError):
            self._file.close()

    def _append(self, data: bytes) -> None:
        if self._size + len(data) > self._limit:
            self._cut()
        self._file.seek(self._size)
        while data:
            data = data[self._file.write(data) :]
        self._size = self._file.tell()

    def _cut(self) -> None:
        """Move the newest bytes behind the first ones."""
        newest = os.pread(self._file.fileno(), self._keep, self._size - self._keep)
        before = self._left_out
        head = self._keep if not before else self._keep + len(_marker(before))
        self._left_out = before + self._size - head - len(newest)
        block = _marker(self._left_out) + newest
        os.pwrite(self._file.fileno(), block, self._keep)
        self._size = self._keep + len(block)
        os.ftruncate(self._file.fileno(), self._size)


def _marker(left_out: int) -> bytes:
    return f"\n[paceline: {left_out:020d} bytes left out]\n".encode()
