"""What a rank calls and writes from the beginning of an evaluation until it trains on."""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline.audits.loader_passes import Pass, pass_of
from paceline.records.event import Event
from paceline.records.observed import Collective
from paceline.records.observed_rank import (
    FileTouched,
    InputSeen,
    LoaderBegun,
    LoaderEnded,
    ObservedStep,
    ScriptEnded,
)

_BYTES_PER_SAMPLE = 4
"""Of a prediction, at least: more than sums and counts take."""
_NOT_MERGING = ("barrier", "monitored_barrier")
_GATHERS = ("all_gather", "gather", "send", "isend", "all_to_all")
_MOST = 400
"""Windows of one rank."""


@dataclass
class _Window:
    step: int
    batch_size: int
    ended: LoaderEnded | None = None
    closed: bool = False
    gathered: bool = False
    merged: bool = False
    roots: set[int | None] = field(default_factory=set)
    """Sources of broadcasts: what one rank broadcasts merges nothing."""
    wrote: bool = False


class EvaluationWindows:
    """Follows each rank in the order of its program; windows may overlap."""

    def __init__(self) -> None:
        self._windows: dict[Pass, _Window] = {}
        self._open: dict[int, list[_Window]] = {}
        self._count: dict[int, int] = {}

    def feed(self, rank: int, event: Event, world: int) -> None:
        """Take an event of a rank."""
        if isinstance(event, LoaderBegun):
            self._begin(rank, event)
        elif isinstance(event, LoaderEnded):
            found = self._windows.get(pass_of(rank, event))
            if found is not None:
                found.ended = event
                if event.backwards:
                    self._close(rank, found)
        elif isinstance(event, ObservedStep | InputSeen):
            step = event.step
            for window in [each for each in self._open.get(rank, []) if step > each.step]:
                self._close(rank, window)
        elif isinstance(event, ScriptEnded):
            for window in list(self._open.get(rank, [])):
                self._close(rank, window)
        elif isinstance(event, Collective) and not event.by_backward:
            self._called(rank, event)
        elif isinstance(event, FileTouched) and event.mode in ("write", "append", "rename"):
            for window in self._open.get(rank, []):
                window.wrote = True

    def gathers(self, rank: int, begun: LoaderBegun) -> bool:
        """The rank gathers something of the size of a prediction for each sample of the pass."""
        found = self._of(rank, begun)
        return found is not None and found.gathered

    def merges(self, rank: int, begun: LoaderBegun) -> bool | None:
        """The rank takes part in a collective that merges results; None where its window is still open."""
        found = self._of(rank, begun)
        if found is None:
            return None
        if found.merged or len(found.roots) > 1:
            return True
        return False if found.closed else None

    def writes(self, rank: int, begun: LoaderBegun) -> bool:
        """The rank writes a file, through which results may be merged."""
        found = self._of(rank, begun)
        return found is not None and found.wrote

    def _of(self, rank: int, begun: LoaderBegun) -> _Window | None:
        return self._windows.get(pass_of(rank, begun))

    def _begin(self, rank: int, event: LoaderBegun) -> None:
        self._count[rank] = self._count.get(rank, 0) + 1
        if self._count[rank] > _MOST:
            return
        window = _Window(event.step, event.batch_size or 1)
        self._windows[pass_of(rank, event)] = window
        self._open.setdefault(rank, []).append(window)

    def _close(self, rank: int, window: _Window) -> None:
        window.closed = True
        self._open[rank] = [each for each in self._open[rank] if each is not window]

    def _called(self, rank: int, event: Collective) -> None:
        for window in self._open.get(rank, []):
            if event.step is not None and event.step > window.step:
                continue
            if event.op.startswith("broadcast"):
                window.roots.add(event.root)
            elif event.op not in _NOT_MERGING:
                window.merged = True
            rows = window.batch_size
            if window.ended is not None:
                rows = window.ended.samples or rows
            if event.op.startswith(_GATHERS) and event.bytes >= _BYTES_PER_SAMPLE * rows:
                window.gathered = True
