"""Evaluations as each rank saw them: the buffers that they began with, and what it called until it trained on."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from paceline.audits.loader_passes import Pass, pass_of, replicas_of
from paceline.records.event import Event, attempt_of
from paceline.records.observed import Collective, Fingerprint
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
class Window:
    """Activity of a rank from the start of a pass over a loader to the next step.

    Attributes:
        begun, ended: of the pass; `ended` is None as long as it has not come.
        buffers: digests of the buffers with which an evaluation began.
        closed: the next step, or the end, has come.
        gathered: the rank gathered something of the size of a prediction for each sample.
        merged: it took part in a collective other than a broadcast.
        roots: sources of broadcasts: a broadcast from one rank alone merges nothing.
        reduced: it called any collective after the pass.
        wrote: it wrote a file, through which results may be merged.
    """

    begun: LoaderBegun
    ended: LoaderEnded | None = None
    buffers: dict[str, str] = field(default_factory=dict)
    closed: bool = False
    gathered: bool = False
    merged: bool = False
    roots: set[int | None] = field(default_factory=set)
    reduced: bool = False
    wrote: bool = False

    @property
    def sharded(self) -> bool:
        """A DistributedSampler gave this rank a part of the data."""
        return replicas_of(self.begun) > 1

    @property
    def merges(self) -> bool | None:
        """The rank takes part in a collective that merges results; None while the window is open."""
        if self.merged or len(self.roots) > 1:
            return True
        return False if self.closed else None


class EvaluationWindows:
    """Follows each rank in the order of its program; windows may overlap.

    Attributes:
        evaluations: passes without backward passes whose state was fingerprinted, by (attempt, step, number of such
            passes before it at that step) and rank.
    """

    def __init__(self) -> None:
        self.evaluations: dict[tuple[int, int, int], dict[int, Window]] = defaultdict(dict)
        self._windows: dict[Pass, Window] = {}
        self._open: dict[int, list[Window]] = {}
        self._count: dict[int, int] = defaultdict(int)
        self._evaluated: dict[tuple[int, int, int], int] = defaultdict(int)
        self._prints: dict[int, Fingerprint] = {}

    def feed(self, rank: int, event: Event, world: int) -> None:
        """Take an event of a rank."""
        if isinstance(event, LoaderBegun):
            self._begin(rank, event)
        elif isinstance(event, LoaderEnded):
            self._end(rank, event)
        elif isinstance(event, Fingerprint):
            if event.moment == "evaluation":
                self._prints[rank] = event
        elif isinstance(event, ObservedStep | InputSeen):
            step = event.step
            self._prints.pop(rank, None)
            for window in [each for each in self._open.get(rank, []) if step > each.begun.step]:
                self._close(rank, window)
        elif isinstance(event, ScriptEnded):
            for window in list(self._open.get(rank, [])):
                self._close(rank, window)
        elif isinstance(event, Collective) and not event.by_backward:
            self._called(rank, event)
        elif isinstance(event, FileTouched) and event.mode in ("write", "append", "rename"):
            for window in self._open.get(rank, []):
                window.wrote = True

    def get(self, rank: int, begun: LoaderBegun) -> Window:
        """The window after a pass of a rank; an empty one if nothing is known about it."""
        return self._windows.get(pass_of(rank, begun)) or Window(begun)

    def _begin(self, rank: int, event: LoaderBegun) -> None:
        self._count[rank] += 1
        if self._count[rank] <= _MOST:
            self._windows[pass_of(rank, event)] = window = Window(event)
            self._open.setdefault(rank, []).append(window)

    def _end(self, rank: int, event: LoaderEnded) -> None:
        window, taken = self._windows.get(pass_of(rank, event)), self._prints.pop(rank, None)
        if window is None:
            return
        window.ended = event
        if event.backwards:
            self._close(rank, window)
        elif taken is not None and event.batches:
            window.buffers = {name: digest for name, digest in taken.digests.items() if name.startswith("buffer:")}
            at = (attempt_of(taken), taken.step)
            self.evaluations[*at, self._evaluated[rank, *at]][rank] = window
            self._evaluated[rank, *at] += 1

    def _close(self, rank: int, window: Window) -> None:
        window.closed = True
        self._open[rank] = [each for each in self._open[rank] if each is not window]

    def _called(self, rank: int, event: Collective) -> None:
        for window in self._open.get(rank, []):
            if event.step is not None and event.step > window.begun.step:
                continue
            window.reduced |= window.ended is not None and event.op not in _NOT_MERGING
            if event.op.startswith("broadcast"):
                window.roots.add(event.root)
            elif event.op not in _NOT_MERGING:
                window.merged = True
            rows = window.begun.batch_size or 1
            if window.ended is not None:
                rows = window.ended.samples or rows
            if event.op.startswith(_GATHERS) and event.bytes >= _BYTES_PER_SAMPLE * rows:
                window.gathered = True
