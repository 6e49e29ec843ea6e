"""Batches for one rank, exactly as `parallel.partition` cuts them.

Two feeds with one interface: whole-tensor gathering for arrays in memory, and DataLoader workers for map-style
datasets. Both start at any batch of any epoch at once, which is all that resuming in mid-epoch needs.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
import signal
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from paceline.parallel.exit import die_with_parent
from paceline.parallel.partition import Span, batch_span, draws_seed, epoch_order, rank_spans, split
from paceline.parallel.seat import SAVE_SIGNALS
from paceline.tasks.data.arrays import Arrays, Draws, Like
from paceline.train.plan import Plan


class Feed(Protocol):
    """What the loop draws from: for each global batch this rank's micro-batches, None where it has no sample."""

    def epoch(self, epoch: int, first: int) -> Iterator[list[Any | None]]:
        """Batches `first` and following of an epoch."""
        ...

    def sample(self, samples: int | None = None) -> Any:
        """A batch of so many samples (of the usual size, when left out), unaugmented, for steps that leave no trace."""
        ...

    def rows(self, indices: Sequence[int]) -> Any:
        """The batch of these samples, unaugmented, made in this process."""
        ...

    def evaluation(self, batch: int) -> Iterator[Any]:
        """This rank's contiguous part of the data in order, `batch` samples at a time."""
        ...


class ArrayFeed:
    """Batches gathered from arrays as whole tensors."""

    def __init__(self, arrays: Arrays, plan: Plan, like: Like) -> None:
        self.arrays = arrays
        self.plan = plan
        self.like = like

    def epoch(self, epoch: int, first: int) -> Iterator[list[Any | None]]:
        """See `Feed`."""
        plan = self.plan
        order = torch.from_numpy(epoch_order(plan.samples, plan.seed, epoch))
        cuts: dict[int, list[Span]] = {}  # of a batch of so many samples; a run meets two lengths
        stage = plan.stage(epoch)
        for index in range(first, plan.steps_in(epoch)):
            whole = batch_span(plan.samples, stage.global_batch, index)
            length = len(whole)
            if length not in cuts:
                cuts[length] = rank_spans(Span(0, length), plan.world, plan.rank, stage.accumulation)
            seed = functools.partial(draws_seed, plan.seed, epoch, index)
            rows = order[whole.start : whole.stop]
            yield [
                self.arrays.batch(rows[span.start : span.stop], Draws(seed, length, span.start, span.stop), self.like)
                if len(span)
                else None
                for span in cuts[length]
            ]

    def sample(self, samples: int | None = None) -> Any:
        """See `Feed`."""
        return self.rows(range(samples or self.plan.usual_micro_batch))

    def rows(self, indices: Sequence[int]) -> Any:
        """See `Feed`."""
        return self.arrays.batch(torch.as_tensor(indices), None, self.like)

    def evaluation(self, batch: int) -> Iterator[Any]:
        """See `Feed`."""
        for span in _evaluation_spans(self.plan, batch):
            yield self.arrays.batch(torch.arange(span.start, span.stop), None, self.like)


class DatasetFeed:
    """Batches from a map-style dataset, through DataLoader workers."""

    def __init__(self, dataset: Any, plan: Plan, like: Like, workers: int) -> None:
        self.dataset = dataset
        self.plan = plan
        self.like = like
        self.workers = workers
        self.collate = getattr(dataset, "collate", None) or default_collate

    def epoch(self, epoch: int, first: int) -> Iterator[list[Any | None]]:
        """See `Feed`."""
        plan = self.plan
        order = epoch_order(plan.samples, plan.seed, epoch)
        spans = [plan.micro_batches(epoch, index) for index in range(first, plan.steps_in(epoch))]
        wanted = [[(epoch, int(i)) for i in order[s.start : s.stop]] for s in itertools.chain(*spans) if len(s)]
        loaded = self._load(wanted)
        for micro in spans:
            yield [self._move(next(loaded)) if len(span) else None for span in micro]

    def sample(self, samples: int | None = None) -> Any:
        """See `Feed`."""
        return self.rows(range(samples or self.plan.usual_micro_batch))

    def rows(self, indices: Sequence[int]) -> Any:
        """See `Feed`."""
        seeded = _Seeded(self.dataset, self.plan.seed)
        return self._move(self.collate([seeded[0, index] for index in indices]))

    def evaluation(self, batch: int) -> Iterator[Any]:
        """See `Feed`."""
        wanted = [[(0, i) for i in range(s.start, s.stop)] for s in _evaluation_spans(self.plan, batch)]
        return map(self._move, self._load(wanted))

    def _load(self, wanted: Sequence[list[tuple[int, int]]]) -> Iterator[Any]:
        loader: DataLoader[Any] = DataLoader(
            _Seeded(self.dataset, self.plan.seed),
            batch_sampler=wanted,
            num_workers=self.workers,
            collate_fn=self.collate,
            worker_init_fn=_start_loader_worker,
            pin_memory=self.like.device.type == "cuda",
            # Seeds for workers come from here instead of torch's global generator, which must not move.
            generator=torch.Generator().manual_seed(self.plan.seed),
        )
        with _signals_held():
            return iter(loader)

    def _move(self, batch: Any) -> Any:
        return torch.utils._pytree.tree_map(self._move_leaf, batch)

    def _move_leaf(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        dtype = self.like.dtype if leaf.is_floating_point() else leaf.dtype
        moved = leaf.to(self.like.device, dtype, non_blocking=True)
        if self.like.channels_last and moved.ndim == 4:
            moved = moved.contiguous(memory_format=torch.channels_last)
        return moved


class _Seeded(Dataset[Any]):
    """A dataset whose random numbers depend on (seed, epoch, sample) only.

    So an augmentation inside `__getitem__` gives the same sample on any rank, in any worker, before and after a
    resume. The generators of the process that calls it are put back.
    """

    def __init__(self, dataset: Any, seed: int) -> None:
        self.dataset = dataset
        self.seed = seed

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, token: tuple[int, int]) -> Any:
        epoch, index = token
        words = np.random.SeedSequence((self.seed, epoch, index)).generate_state(3, np.uint32)
        before = random.getstate(), np.random.get_state(), torch.get_rng_state()
        try:
            random.seed(int(words[0]))
            np.random.seed(int(words[1]))
            torch.default_generator.manual_seed(int(words[2]))  # torch.manual_seed would move CUDA's, too
            return self.dataset[index]
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])
            torch.set_rng_state(before[2])


_OF_THE_RANK = (signal.SIGTERM, signal.SIGINT, *SAVE_SIGNALS)
"""Signals that mean the rank. A launcher or a scheduler may send them to the loader processes as well."""


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """While loader processes start: torch gives each a handler of its own, which ends it, before ours is set."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_THE_RANK)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_loader_worker(worker: int) -> None:
    """Loader processes end with their rank, and leave signals that mean the rank to the rank."""
    del worker
    die_with_parent()
    for number in _OF_THE_RANK:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _OF_THE_RANK)


def _evaluation_spans(plan: Plan, batch: int) -> Iterator[Span]:
    mine = split(plan.samples, plan.world, plan.rank)
    for start in range(mine.start, mine.stop, batch):
        yield Span(start, min(start + batch, mine.stop))


def make_feed(data: Any, plan: Plan, like: Like, loader_workers: int) -> Feed:
    """The feed for a task's data; arrays move to the device when they take less than half of its free memory."""
    if not isinstance(data, Arrays):
        return DatasetFeed(data, plan, like, loader_workers)
    if like.device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(like.device)
        if data.size_bytes < free // 2:
            data = data.to(like.device)
    return ArrayFeed(data, plan, like)
