"""The ledger of a loader: which samples did the training loop really receive, batch by batch?

    with LoaderLedger() as ledger:
        train()
    ledger.passes                # [LoaderPass(loader=0, number=0, samples=1003, batches=[[5, 17, ...], ...]), ...]

It looks at torch's DataLoader from inside: an index counts when its batch is handed to the loop, not when a sampler
names it or a worker reads it ahead. The data set, the sampler and the batches stay what they are. What has no indices
(iterable data sets) or comes in another order than it was asked for (`in_order=False`) is said not to be observed.
"""

from __future__ import annotations

import itertools
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data import dataloader as machinery

from paceline.observe.watch import Watch
from paceline.records.observed import LoaderPass, NotObserved


class LoaderLedger(Watch):
    """Watches every DataLoader of this process; see `Watch`."""

    def __init__(self) -> None:
        super().__init__()
        self._passes: list[_Pass] = []
        self._current: weakref.WeakKeyDictionary[Any, _Pass] = weakref.WeakKeyDictionary()
        self._early: weakref.WeakKeyDictionary[Any, deque[Any]] = weakref.WeakKeyDictionary()
        self._numbers: weakref.WeakKeyDictionary[Any, tuple[int, itertools.count[int]]] = weakref.WeakKeyDictionary()
        self._loaders = itertools.count()

    @property
    def passes(self) -> list[LoaderPass]:
        """What was received so far, in the order in which passes began."""
        return [each.as_record() for each in self._passes]

    def start(self) -> None:
        """Watch from now on."""
        iterator = machinery._BaseDataLoaderIter
        self._spy(DataLoader, "__iter__", after=lambda made, args: self._began(args[0], made))
        self._spy(iterator, "_reset", after=lambda _, args: self._again(args[0]))
        self._spy(iterator, "_next_index", after=lambda index, args: self._asked(args[0], index))
        self._spy(iterator, "__next__", after=lambda _, args: self._received(args[0]))

    def _began(self, loader: Any, iterator: Any) -> None:
        if loader not in self._numbers:
            self._numbers[loader] = (next(self._loaders), itertools.count())
        index, counter = self._numbers[loader]
        begun = _Pass(index, next(counter), _length(loader.dataset), _not_observed(loader))
        # Loader workers are given their first indices while the iterator is made, before it is known here.
        begun.asked = self._early.pop(iterator, begun.asked)
        self._current[iterator] = begun
        self._passes.append(begun)

    def _again(self, iterator: Any) -> None:
        """An iterator with workers begins, or is used once more: what the last pass had asked for is void."""
        self._current.pop(iterator, None)
        self._early[iterator] = deque()

    def _asked(self, iterator: Any, index: Any) -> None:
        current = self._current.get(iterator)
        if current is not None:
            current.asked.append(index)
        else:
            self._early.setdefault(iterator, deque()).append(index)

    def _received(self, iterator: Any) -> None:
        current = self._current.get(iterator)
        if current is None or current.not_observed or not current.asked:
            return
        index = current.asked.popleft()
        current.batches.append([int(each) for each in index] if isinstance(index, list | tuple) else [int(index)])


@dataclass
class _Pass:
    """One pass while it goes on; see LoaderPass."""

    loader: int
    number: int
    samples: int | None
    not_observed: NotObserved | None
    asked: deque[Any] = field(default_factory=deque)
    """Indices that were asked for and have not been received."""
    batches: list[list[int]] = field(default_factory=list)

    def as_record(self) -> LoaderPass:
        return LoaderPass(
            loader=self.loader,
            number=self.number,
            samples=self.samples,
            batches=[list(batch) for batch in self.batches],
            not_observed=self.not_observed,
        )


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None


def _not_observed(loader: Any) -> NotObserved | None:
    if loader._dataset_kind == machinery._DatasetKind.Iterable:
        return NotObserved(what="sample indices", why="an iterable data set has none")
    if not getattr(loader, "in_order", True):
        why = "in_order=False: batches come in another order than they were asked for"
        return NotObserved(what="sample indices", why=why)
    return None
