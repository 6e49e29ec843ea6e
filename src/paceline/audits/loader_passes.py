"""Passes over data loaders, aligned across ranks.

Numbers of loaders count what a process iterates over first. They shift where one rank previews a batch or evaluates
alone, so passes are aligned by what all ranks have in common: the line of the loop and the loader's settings, then the
order of the passes there. A loader that is made anew in each epoch continues the same series.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from paceline.audits.index_set import IndexSet
from paceline.records.event import Event, attempt_of
from paceline.records.observed_rank import LedgerBatch, LoaderBegun, LoaderEnded, ModelWrapped

MOST_PASSES = 8
"""Limit for each series and rank; later passes are ignored."""
MOST_SERIES = 200
LEDGER_PASSES = 3
"""Passes whose indices are kept, for each series and rank."""
MOST_BYTES = 64 << 20
"""Of all bitmaps together."""
TORCH_SAMPLERS = ("RandomSampler", "SequentialSampler")
T = TypeVar("T")
Series = tuple[object, ...]
Pass = tuple[int, int, int, int]
"""Attempt, rank, number of the loader, and number of the pass over it."""


def pass_of(rank: int, event: LoaderBegun | LoaderEnded | LedgerBatch) -> Pass:
    """The pass that an event of a rank belongs to."""
    return attempt_of(event), rank, event.loader, event.number


@dataclass
class RankPass:
    """One pass of one rank.

    Attributes:
        begun, ended: its events; None as long as they have not come.
        indices: the samples, where the ledger has them.
        batches: of the ledger.
        models: models that this rank had wrapped when the pass began.
    """

    begun: LoaderBegun | None = None
    ended: LoaderEnded | None = None
    indices: IndexSet | None = None
    batches: int = 0
    models: int = 0

    @property
    def bits(self) -> int | None:
        """The samples as a bitmap; None unless the ledger has all of them."""
        if self.ended is None or self.indices is None or self.indices.overflow or not self.ended.recorded:
            return None
        return self.indices.bits if 0 < self.batches == self.ended.batches else None


@dataclass
class SharedPass:
    """A pass that all ranks have begun and ended.

    Attributes:
        series: what it is aligned by.
        ordinal: 0 for the first of its series.
        begun, ended, ranks: by rank.
    """

    series: Series
    ordinal: int
    ranks: dict[int, RankPass]
    begun: dict[int, LoaderBegun] = field(default_factory=dict)
    ended: dict[int, LoaderEnded] = field(default_factory=dict)

    @property
    def first(self) -> LoaderBegun:
        """The event of rank 0, or of the lowest rank that began the pass."""
        return self.begun[min(self.begun)]

    @property
    def training(self) -> bool:
        """Every rank trained during it."""
        return all(each.trained for each in self.ended.values())

    @property
    def evaluation(self) -> bool:
        """Every rank read all that its loader gives, and none trained during it."""
        return all(each.backwards == 0 and each.exhausted and each.batches > 0 for each in self.ended.values())

    @property
    def exhausted(self) -> bool:
        """No rank left it early."""
        return all(each.exhausted for each in self.ended.values())

    @property
    def aligned(self) -> bool:
        """All ranks began it after the same optimizer step."""
        return len({each.step for each in self.begun.values()}) == 1

    @property
    def replicas(self) -> int:
        """Ranks among which a DistributedSampler shards; 0 where there is none on some rank, or they do not agree."""
        found = {replicas_of(each) for each in self.begun.values()}
        return found.pop() if len(found) == 1 else 0

    @property
    def bits(self) -> dict[int, int] | None:
        """The samples of each rank; None unless the ledger of every rank is complete."""
        found = {rank: each.bits for rank, each in self.ranks.items()}
        known = {rank: bits for rank, bits in found.items() if bits is not None}
        return known if len(known) == len(found) else None


class LoaderPasses:
    """Collects the first passes of each series of all ranks."""

    def __init__(self) -> None:
        self._world = 0
        self._bytes = 0
        self._models: dict[int, int] = defaultdict(int)
        self._by_number: dict[Pass, RankPass] = {}
        self._series: dict[Series, dict[int, list[RankPass]]] = {}
        self._shared: list[SharedPass] | None = None

    def feed(self, rank: int, event: Event, world: int) -> None:
        """Take the events of passes; others are ignored."""
        if isinstance(event, LedgerBatch):
            self._add(rank, event)
        elif isinstance(event, LoaderBegun):
            self._world, self._shared = world, None
            self._begin(rank, event)
        elif isinstance(event, LoaderEnded):
            self._world, self._shared = world, None
            if (found := self._by_number.get(pass_of(rank, event))) is not None:
                found.ended = event
        elif isinstance(event, ModelWrapped):
            self._models[rank] += 1

    def get(self, key: Pass) -> RankPass:
        """One pass of one rank; an empty one where nothing is known of it."""
        return self._by_number.get(key) or RankPass()

    def shared(self) -> list[SharedPass]:
        """Passes that every rank of the job began and ended, each series in order."""
        if self._shared is None:
            self._shared = [
                SharedPass(series, ordinal, each, begun, ended)
                for series, ordinal, each in self._aligned()
                if (begun := _all({rank: one.begun for rank, one in each.items()}))
                and (ended := _all({rank: one.ended for rank, one in each.items()}))
            ]
        return self._shared

    def begun(self) -> list[dict[int, LoaderBegun]]:
        """Passes that every rank of the job began after the same optimizer step, ended or not."""
        found = [_all({rank: one.begun for rank, one in each.items()}) for _, _, each in self._aligned()]
        return [begun for begun in found if len({one.step for one in begun.values()}) == 1]

    def _aligned(self) -> Iterator[tuple[Series, int, dict[int, RankPass]]]:
        for series, ranks in self._series.items():
            if len(ranks) >= self._world > 1:
                for ordinal, each in enumerate(zip(*(ranks[rank] for rank in sorted(ranks)), strict=False)):
                    yield series, ordinal, dict(zip(sorted(ranks), each, strict=True))

    def _begin(self, rank: int, event: LoaderBegun) -> None:
        key = pass_of(rank, event)
        series = series_of(event)
        if series not in self._series and len(self._series) >= MOST_SERIES:
            return
        passes = self._series.setdefault(series, {}).setdefault(rank, [])
        if len(passes) >= MOST_PASSES:
            self._by_number.pop(key, None)
            return
        found = self._by_number.setdefault(key, RankPass())
        found.begun, found.models = event, self._models[rank]
        passes.append(found)
        if len(passes) > LEDGER_PASSES:
            found.indices = None

    def _add(self, rank: int, event: LedgerBatch) -> None:
        key = pass_of(rank, event)
        found = self._by_number.get(key)
        if found is None:
            if event.number >= LEDGER_PASSES or len(self._by_number) > MOST_SERIES * MOST_PASSES:
                return
            found = self._by_number[key] = RankPass()
        if found.indices is None:
            if found.batches or self._bytes > MOST_BYTES or self._late(rank, found):
                found.batches += 1
                return
            found.indices = IndexSet()
        before = found.indices.size_bytes
        found.indices.add(event.indices)
        found.batches += 1
        self._bytes += found.indices.size_bytes - before

    def _late(self, rank: int, found: RankPass) -> bool:
        """True if the pass is known to be one of those whose indices are not kept."""
        if found.begun is None:
            return False
        passes = self._series[series_of(found.begun)][rank]
        return all(found is not each for each in passes[:LEDGER_PASSES])


def _all(values: dict[int, T | None]) -> dict[int, T]:
    """The values of all ranks; empty unless each rank has one."""
    found = {rank: value for rank, value in values.items() if value is not None}
    return found if len(found) == len(values) else {}


def series_of(begun: LoaderBegun) -> Series:
    """Identify the passes of one loop over one kind of loader on all ranks."""
    where = (begun.place.path, begun.place.line) if begun.place else begun.loader
    kind = (begun.dataset, begun.samples, begun.batch_size, begun.sampler, begun.loader_class, begun.iterable)
    return (attempt_of(begun), where, *kind)


def replicas_of(begun: LoaderBegun) -> int:
    """Ranks among which a DistributedSampler shards; 0 without one."""
    replicas = begun.sampler_facts.get("num_replicas")
    return replicas if isinstance(replicas, int) else 0


def same_data(begun: Iterable[LoaderBegun]) -> bool | None:
    """True if ranks hold the same root data set; None where the events do not say.

    Equal attributes prove nothing: a data set may draw its samples at random.
    """
    each = list(begun)
    contents = {one.content for one in each}
    attributes = {one.attributes for one in each}
    if len(contents) > 1 or len(attributes) > 1 or len({one.root_samples for one in each}) > 1:
        return False
    return None if contents == {None} else True
