"""JSON lines on disk, with one policy for what cannot be read: pass over it, count it, and say so.

A torn last line is what a killed process leaves. A line that is no JSON, or not what it says it is, is damaged. A line
whose type is not known was written by a later version. None of them hides what stands around it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar, get_args

import msgspec

from paceline.records.errors import PacelineError

T = TypeVar("T")
MAX_LINE_BYTES = 16 * 1024 * 1024
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Exceptions that decoding a damaged line raises; RecursionError if it nests too deeply."""


class JsonLines(Generic[T]):
    """Reads a file of structs, and counts the lines that it skips.

    Args:
        path: the file.
        kind: what its lines hold: a struct, or a union of tagged ones.

    Attributes:
        torn_bytes: of a last line without its end.
        damaged_lines: that are no JSON, or not of `kind`.
        unknown_lines: with a type that a later version added.
    """

    def __init__(self, path: Path, kind: Any) -> None:
        self.path = path
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)
        tags = {member.__struct_config__.tag for member in get_args(kind) or (kind,)}
        self._tags = tags - {None}
        self.torn_bytes = self.damaged_lines = self.unknown_lines = 0

    @property
    def notes(self) -> list[str]:
        """One message for each kind of line that was skipped."""
        notes = []
        if self.torn_bytes:
            notes.append(
                f"{self.path}: the last line is torn ({self.torn_bytes} bytes, the run was killed while writing)"
            )
        if self.damaged_lines:
            notes.append(f"{self.path}: {self.damaged_lines} damaged line(s) were passed over")
        if self.unknown_lines:
            notes.append(f"{self.path}: {self.unknown_lines} event(s) of a later version were passed over")
        return notes

    def decode(self, line: bytes) -> T | None:
        """One whole line; None where it is passed over."""
        try:
            return self._decoder.decode(line)
        except _UNREADABLE:
            if self._of_a_later_version(line):
                self.unknown_lines += 1
            else:
                self.damaged_lines += 1
            return None

    def scan(self, marker: bytes = b"") -> Iterator[tuple[int, T]]:
        """Number (1 for the first) and content of each line of the file, in constant memory; counting begins anew.

        Args:
            marker: lines without these bytes are not looked at.

        Raises:
            PacelineError: the file cannot be read.
        """
        self.torn_bytes = self.damaged_lines = self.unknown_lines = 0
        try:
            file = self.path.open("rb")
        except OSError as error:
            raise PacelineError(f"cannot read {self.path}", why=error.strerror or str(error)) from error
        with file:
            number = 0
            while line := file.readline(MAX_LINE_BYTES):
                number += 1
                if not line.endswith(b"\n"):
                    if len(line) < MAX_LINE_BYTES:
                        self.torn_bytes = len(line)
                        return
                    _skip_rest_of_line(file)
                    self.damaged_lines += 1
                elif marker in line and (found := self.decode(line)) is not None:
                    yield number, found

    def _of_a_later_version(self, line: bytes) -> bool:
        try:
            head = msgspec.json.decode(line)
        except _UNREADABLE:
            return False
        tag = head.get("type") if isinstance(head, dict) else None
        return isinstance(tag, str) and bool(self._tags) and tag not in self._tags


def _skip_rest_of_line(file: BinaryIO) -> None:
    while (rest := file.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
        pass
