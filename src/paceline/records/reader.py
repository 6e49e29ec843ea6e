"""Read events as a stream: a file of any size in constant memory.

A torn last line, a line that is no JSON, an event type of a later version: each is passed over and counted, and
`EventStream.notes` says so in words. Nothing is dropped in silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from paceline.records.errors import PacelineError
from paceline.records.event import Event
from paceline.records.schema import AnyEvent, Checkpoint, Evaluation, GradientNorms, Start, Step

_MAX_LINE_BYTES = 16 * 1024 * 1024
_OF_STEPS = Step | GradientNorms | Evaluation | Checkpoint
"""What a session that goes back to an earlier step does again."""
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding a damaged line may raise; RecursionError for one that nests too deeply."""


class EventStream:
    """Iterates over the events of one rank, in order.

    Args:
        path: an event file.
        superseded: also yield events that a later session (resumed from an earlier step) did again.
        only: pass over lines that cannot be of this type, without looking into them: for few events among many. Others
            may still be yielded.
    """

    def __init__(self, path: Path, *, superseded: bool = False, only: type[Event] | None = None) -> None:
        self.path = path
        self._only = only
        self._superseded = superseded
        self.torn_bytes = 0
        self.damaged_lines = 0
        self.unknown_events = 0

    @property
    def notes(self) -> list[str]:
        """What was passed over by the last iteration, in words."""
        notes = []
        if self.torn_bytes:
            notes.append(
                f"{self.path}: the last line is torn ({self.torn_bytes} bytes, the run was killed while writing)"
            )
        if self.damaged_lines:
            notes.append(f"{self.path}: {self.damaged_lines} damaged line(s) were passed over")
        if self.unknown_events:
            notes.append(f"{self.path}: {self.unknown_events} event(s) of a later version were passed over")
        return notes

    def __iter__(self) -> Iterator[AnyEvent]:
        if self._superseded:
            yield from (event for _, event in self._scan(self._only))
            return
        resumes = [(index, event.step) for index, event in self._scan(Start) if isinstance(event, Start)]
        position = 0
        for index, event in self._scan(self._only):
            while position < len(resumes) and resumes[position][0] <= index:
                position += 1
            limit = min((step for _, step in resumes[position:]), default=None)
            if limit is not None and isinstance(event, _OF_STEPS) and event.step > limit:
                continue
            yield event

    def _scan(self, only: type[Event] | None) -> Iterator[tuple[int, AnyEvent]]:
        self.torn_bytes = self.damaged_lines = self.unknown_events = 0
        decoder = msgspec.json.Decoder(AnyEvent)
        marker = b"" if only is None else f'"{only.__struct_config__.tag}"'.encode()
        try:
            file = self.path.open("rb")
        except OSError as error:
            raise PacelineError(f"cannot read {self.path}", why=error.strerror or str(error)) from error
        with file:
            index = 0
            while line := file.readline(_MAX_LINE_BYTES):
                index += 1
                if not line.endswith(b"\n"):
                    if len(line) < _MAX_LINE_BYTES:
                        self.torn_bytes = len(line)
                        return
                    self._skip_rest_of_line(file)
                    self.damaged_lines += 1
                    continue
                if marker not in line:
                    continue
                try:
                    yield index, decoder.decode(line)
                except _UNREADABLE:
                    self._classify(line)

    @staticmethod
    def _skip_rest_of_line(file: object) -> None:
        while True:
            rest: bytes = file.readline(_MAX_LINE_BYTES)  # type: ignore[attr-defined]
            if not rest or rest.endswith(b"\n"):
                return

    def _classify(self, line: bytes) -> None:
        try:
            head = msgspec.json.decode(line)
        except _UNREADABLE:
            self.damaged_lines += 1
            return
        known = {cls.__struct_config__.tag for cls in AnyEvent.__args__}
        if isinstance(head, dict) and isinstance(head.get("type"), str) and head["type"] not in known:
            self.unknown_events += 1
        else:
            self.damaged_lines += 1
