"""Where observed events go: into memory, into a file at once, or into the ring that the launcher reads."""

from __future__ import annotations

from array import array
from collections.abc import MutableSequence
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from paceline.records.event import Event
from paceline.records.observed import NotObserved
from paceline.records.ring import Kind, RingWriter, pack_batch
from paceline.records.writer import EventWriter

Counters: TypeAlias = "MutableSequence[int] | memoryview[int]"
_Event = TypeVar("_Event", bound=Event)


class Sink(Protocol):
    """Takes events and batches of sample indices.

    Attributes:
        counters: how far the rank is, by `records.ring.ENTERED` and the others: a store costs less than a call.
    """

    counters: Counters

    def emit(self, event: Event) -> None:
        """Take an event."""

    def batch(self, loader: int, number: int, batch: int, indices: array[int]) -> None:
        """Take the root indices of one batch: of a loader's pass `number`, batch 0 for the first."""

    def beat(self, step: int, samples: int) -> None:
        """Take note of how far the rank is."""


class MemorySink:
    """Keeps everything, for tests and for the course; see `of`.

    Attributes:
        events: in order.
        batches: (loader, pass, batch, indices), in order.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.batches: list[tuple[int, int, int, list[int]]] = []
        self.counters: Counters = [0] * 4

    def of(self, kind: type[_Event]) -> list[_Event]:
        """Events of one type, in order."""
        return [each for each in self.events if isinstance(each, kind)]

    def emit(self, event: Event) -> None:
        """Keep an event."""
        self.events.append(event)

    def batch(self, loader: int, number: int, batch: int, indices: array[int]) -> None:
        """Keep the indices of a batch."""
        self.batches.append((loader, number, batch, list(indices)))

    def beat(self, step: int, samples: int) -> None:
        """Nobody reads it."""


class ImmediateSink:
    """Writes each event to a file before it returns: the last line says what a hanging process is in.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self._writer = EventWriter(path)
        self.counters: Counters = [0] * 4

    def emit(self, event: Event) -> None:
        """Write an event."""
        self._writer.write(event)

    def batch(self, loader: int, number: int, batch: int, indices: array[int]) -> None:
        """Indices are not written."""

    def beat(self, step: int, samples: int) -> None:
        """Nobody reads it."""

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


class RingSink:
    """Writes to the ring of this rank.

    Args:
        ring: of this rank.
        attempt: written into each event where the job may be restarted.
    """

    def __init__(self, ring: RingWriter, attempt: int | msgspec.UnsetType = msgspec.UNSET) -> None:
        self._ring, self._attempt = ring, attempt
        self._encode = msgspec.json.Encoder().encode
        self.beat = ring.beat
        self.counters: Counters = ring.counters
        self._reported = 0

    def emit(self, event: Event) -> None:
        """Write an event; one that finds no room is counted, and reported once there is room again."""
        if self._ring.dropped > self._reported:
            lost, self._reported = self._ring.dropped, self._ring.dropped
            why = f"{lost} records found no room in the ring"
            self._ring.write(self._encode(NotObserved(what="some records", why=why)))
        if self._attempt is not msgspec.UNSET:
            event = msgspec.structs.replace(event, attempt=self._attempt)
        self._ring.write(self._encode(event))

    def batch(self, loader: int, number: int, batch: int, indices: array[int]) -> None:
        """Write the indices of a batch."""
        self._ring.write(pack_batch(loader, number, batch, indices.tobytes()), Kind.BATCH)
