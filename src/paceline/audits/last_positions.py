"""The last position of each rank: its step, its batches, and the collective in which its events end."""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline.records.event import Event, attempt_of
from paceline.records.observed import Collective, CollectivesCounted
from paceline.records.observed_rank import InputSeen, LoaderBegun, LoaderEnded, ObservedStep, RankStarted, ScriptEnded
from paceline.records.place import Place

Batch = tuple[int, int, int]
"""Loader, pass and number of a batch, each 0 for the first."""


@dataclass
class RankPosition:
    """How far a rank came in one attempt.

    Attributes:
        step: optimizer steps done.
        begun: the last step whose forward pass was recorded.
        batches: the last batch before each recorded step.
        passes: passes over loaders that ended, or that the end of the script cut short, by loader and number.
        evaluates: the pass in which the rank is, or was at its end, if DDP's forward runs in it without gradients.
        backward: the line of the last recorded backward pass.
        loaders: where each loader was made, by number.
        last: the collective of the script after which nothing was recorded; None if something was.
        numbers: of the last recorded collective of the script, by group.
        lines: at which the script called collectives.
    """

    step: int = 0
    begun: int = 0
    batches: dict[int, Batch] = field(default_factory=dict)
    passes: dict[tuple[int, int], LoaderEnded] = field(default_factory=dict)
    evaluates: LoaderEnded | None = None
    backward: Place | None = None
    loaders: dict[int, Place | None] = field(default_factory=dict)
    last: Collective | None = None
    numbers: dict[str, int] = field(default_factory=dict)
    lines: set[Place | None] = field(default_factory=set)

    @property
    def open(self) -> Collective | None:
        """The collective in which the rank's record ends; None where it has taken steps since."""
        return self.last if self.last is not None and self.last.step in (None, self.step) else None

    def same_loader(self, other: RankPosition, loader: int) -> bool:
        """Return True if a number means the same loader on both ranks: numbers shift if one rank has more loaders."""
        return self.loaders.get(loader) == other.loaders.get(loader)

    def take(self, event: Event) -> None:
        """Take the rank's next event."""
        match event:
            case ObservedStep():
                self.step, self.last = max(self.step, event.step), None
                self.backward = event.backward_place or self.backward
                if event.loader is not None and event.number is not None and event.batch is not None:
                    self.batches[event.step] = (event.loader, event.number, event.batch)
            case InputSeen():
                self.begun, self.last = max(self.begun, event.step), None
            case LoaderBegun():
                self.last = self.evaluates = None
                self.loaders[event.loader] = event.place
            case LoaderEnded():
                self.passes[event.loader, event.number] = event
                cut = not event.exhausted and not event.trained and event.wrapped_forwards > 0
                self.evaluates = event if cut else None
            case Collective():
                self.last = event
                self.lines.add(event.place)
                if event.number is not None:
                    self.numbers[event.group] = max(self.numbers.get(event.group, 0), event.number)
                self.step = max(self.step, event.step or 0)
            case CollectivesCounted():  # the script ended without an exception
                self.last = None
            case ScriptEnded():
                self.step = max(self.step, event.step)
            case _:
                pass


class LastPositions:
    """Follows the position of each rank in each attempt."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int], RankPosition] = {}

    def feed(self, rank: int, event: Event, _: int) -> None:
        """Take an event of a rank."""
        key = (attempt_of(event), rank)
        if isinstance(event, RankStarted) or key not in self._found:
            self._found[key] = RankPosition()
        self._found[key].take(event)

    def of(self, attempt: int) -> dict[int, RankPosition]:
        """The positions by rank; empty for an attempt without events."""
        return {rank: each for (number, rank), each in sorted(self._found.items()) if number == attempt}
