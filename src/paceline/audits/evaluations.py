"""Evaluations as each rank saw them: the buffers that they began with, and how the model was called."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass

from paceline.records.event import Event
from paceline.records.observed import Collective, Fingerprint
from paceline.records.observed_rank import LoaderBegun, LoaderEnded, ObservedStep
from paceline.records.place import Place


@dataclass
class Evaluated:
    """One rank's pass over an evaluation loader.

    Attributes:
        digests: of its state when the pass began.
        wrapped_forwards: passes through a wrapper, each of which broadcasts buffers.
        sharded: a DistributedSampler gave this rank a part of the data.
        order: digest of the samples that it saw.
        reduced: the script called a collective after it, before the next step.
        place: where the loop over the loader is.
    """

    digests: dict[str, str]
    wrapped_forwards: int
    sharded: bool
    order: str | None
    place: Place | None
    reduced: bool = False


class Evaluations:
    """Collects evaluations by step and rank.

    Attributes:
        by_step: for each evaluation, as (attempt, step, how many before it at that step), the ranks that ended it.
    """

    def __init__(self) -> None:
        self.by_step: dict[tuple[Hashable, int, int], dict[int, Evaluated]] = defaultdict(dict)
        self._begun: dict[int, LoaderBegun] = {}
        self._print: dict[int, Fingerprint] = {}
        self._last: dict[int, Evaluated] = {}
        self._count: dict[tuple[int, Hashable, int], int] = defaultdict(int)

    def feed(self, rank: int, event: Event) -> None:
        """Take an event of a rank, in the order of its program."""
        if isinstance(event, Fingerprint):
            if event.moment == "evaluation":
                self._print[rank] = event
        elif isinstance(event, LoaderBegun):
            self._begun[rank] = event
        elif isinstance(event, LoaderEnded):
            self._ended(rank, event)
        elif isinstance(event, Collective) and event.op != "barrier":
            if rank in self._last and not event.by_backward:
                self._last[rank].reduced = True
        elif isinstance(event, ObservedStep):
            self._last.pop(rank, None)
            self._print.pop(rank, None)

    def _ended(self, rank: int, event: LoaderEnded) -> None:
        begun, taken = self._begun.get(rank), self._print.pop(rank, None)
        if taken is None or event.backwards or not event.batches:
            return
        same = begun is not None and (begun.loader, begun.number) == (event.loader, event.number)
        replicas = begun.sampler_facts.get("num_replicas") if begun is not None and same else None
        evaluated = Evaluated(
            digests=taken.digests,
            wrapped_forwards=event.wrapped_forwards,
            sharded=isinstance(replicas, int) and replicas > 1,
            order=event.order,
            place=begun.place if begun is not None and same else None,
        )
        number = self._count[rank, taken.attempt, taken.step]
        self._count[rank, taken.attempt, taken.step] += 1
        self.by_step[taken.attempt, taken.step, number][rank] = evaluated
        self._last[rank] = evaluated
