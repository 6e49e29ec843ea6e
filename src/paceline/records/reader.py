"""Read events as a stream: a file of any size in constant memory. See `lines` for what cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from paceline.records.event import Event
from paceline.records.lines import JsonLines
from paceline.records.schema import AnyEvent, Checkpoint, Evaluation, GradientNorms, Start, Step

_OF_STEPS = Step | GradientNorms | Evaluation | Checkpoint
"""What a session that goes back to an earlier step does again."""


class EventStream(JsonLines[AnyEvent]):
    """Iterates over the events of one writer, in order.

    Args:
        path: an event file.
        superseded: also yield events that a later session (resumed from an earlier step) did again.
        only: pass over lines that cannot be of this type, without looking into them: for few events among many. Others
            may still be yielded.
    """

    def __init__(self, path: Path, *, superseded: bool = False, only: type[Event] | None = None) -> None:
        super().__init__(path, AnyEvent)
        self._only = only
        self._superseded = superseded

    def __iter__(self) -> Iterator[AnyEvent]:
        if self._superseded:
            yield from (event for _, event in self._events(self._only))
            return
        resumes = [
            (number, event.goes_back_to)
            for number, event in self._events(Start)
            if isinstance(event, Start) and event.goes_back_to is not None
        ]
        position = 0
        for number, event in self._events(self._only):
            while position < len(resumes) and resumes[position][0] <= number:
                position += 1
            limit = min((step for _, step in resumes[position:]), default=None)
            if limit is not None and isinstance(event, _OF_STEPS) and event.step > limit:
                continue
            yield event

    def _events(self, only: type[Event] | None) -> Iterator[tuple[int, AnyEvent]]:
        return self.scan(b"" if only is None else f'"{only.__struct_config__.tag}"'.encode())
