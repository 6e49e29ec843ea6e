"""Batches for one rank, exactly as `parallel.partition` cuts them.

Two feeds with one interface: whole-tensor gathering for arrays in memory, and DataLoader workers for map-style
datasets. Both start at any batch of any epoch at once, which is all that resuming in mid-epoch needs.

How many samples a batch has is known here, from the plan. It is never read off a batch, whose form is the task's own:
time first, packed sequences, graphs joined along their nodes, text.
"""

from __future__ import annotations

import functools
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader

from paceline.parallel.partition import batch_span, draws_seed, epoch_order, rank_spans, split
from paceline.tasks.data.arrays import Arrays, Draws, Like, to_device
from paceline.tasks.data.dataset_hooks import collate_of, tell_epoch
from paceline.tasks.task_loader import task_files
from paceline.train.batch_plan import Plan
from paceline.train.loader_processes import Seeded, begin, check_loadable, start_method, starting


class Feed(ABC):
    """What the loop draws from."""

    plan: Plan

    @abstractmethod
    def epoch(self, epoch: int, first: int) -> Iterator[list[Any | None]]:
        """Batches `first` and following of an epoch: this rank's micro-batches of each, None where it has no sample."""

    @abstractmethod
    def rows(self, indices: Sequence[int]) -> Any:
        """The batch of these samples, unaugmented, made in this process."""

    @abstractmethod
    def evaluation(self, batch: int) -> Iterator[tuple[Any, int]]:
        """This rank's contiguous part of the data in order, and how many samples each batch has, `batch` at most."""

    def sample(self, samples: int | None = None) -> Any:
        """A batch of so many samples (of the usual size, when left out), unaugmented, for steps that leave no trace."""
        return self.rows(range(samples or self.plan.usual_micro_batch))


class ArrayFeed(Feed):
    """Batches gathered from arrays as whole tensors."""

    def __init__(self, arrays: Arrays, plan: Plan, like: Like) -> None:
        self.arrays = arrays
        self.plan = plan
        self.like = like

    def epoch(self, epoch: int, first: int) -> Iterator[list[Any | None]]:
        """See `Feed`."""
        plan = self.plan
        tell_epoch(self.arrays, epoch)
        order = torch.from_numpy(epoch_order(plan.samples, plan.seed, epoch))
        cuts: dict[int, list[range]] = {}  # of a batch of so many samples; a run meets two lengths
        stage = plan.stage(epoch)
        for index in range(first, plan.steps_in(epoch)):
            whole = batch_span(plan.samples, stage.global_batch, index)
            length = len(whole)
            if length not in cuts:
                cuts[length] = rank_spans(range(length), plan.world, plan.rank, stage.accumulation)
            seed = functools.partial(draws_seed, plan.seed, epoch, index)
            rows = order[whole.start : whole.stop]
            yield [
                self.arrays.batch(rows[span.start : span.stop], Draws(seed, length, span.start, span.stop), self.like)
                if len(span)
                else None
                for span in cuts[length]
            ]

    def rows(self, indices: Sequence[int]) -> Any:
        """See `Feed`."""
        return self.arrays.batch(torch.as_tensor(indices), None, self.like)

    def evaluation(self, batch: int) -> Iterator[tuple[Any, int]]:
        """See `Feed`."""
        for span in _evaluation_spans(self.plan, batch):
            yield self.arrays.batch(torch.arange(span.start, span.stop), None, self.like), len(span)


class DatasetFeed(Feed):
    """Batches from a map-style dataset, through DataLoader workers."""

    def __init__(self, dataset: Any, plan: Plan, like: Like, workers: int) -> None:
        self.dataset = dataset
        self.plan = plan
        self.like = like
        self.workers = workers
        self.collate = collate_of(dataset)

    def epoch(self, epoch: int, first: int) -> Iterator[list[Any | None]]:
        """See `Feed`."""
        plan = self.plan
        order = epoch_order(plan.samples, plan.seed, epoch)
        spans = [plan.micro_batches(epoch, index) for index in range(first, plan.steps_in(epoch))]
        wanted = [[(epoch, int(i)) for i in order[s.start : s.stop]] for s in itertools.chain(*spans) if len(s)]
        loaded = self._load(wanted, epoch)
        for micro in spans:
            yield [next(loaded) if len(span) else None for span in micro]

    def rows(self, indices: Sequence[int]) -> Any:
        """See `Feed`; of epoch 0."""
        tell_epoch(self.dataset, 0)
        seeded = Seeded(task_files(), self.dataset, self.plan.seed)
        return to_device(self.collate([seeded[0, index] for index in indices]), self.like)

    def evaluation(self, batch: int) -> Iterator[tuple[Any, int]]:
        """See `Feed`; at every evaluation the dataset is as in epoch 0."""
        spans = list(_evaluation_spans(self.plan, batch))
        loaded = self._load([[(0, i) for i in span] for span in spans], 0)
        return zip(loaded, map(len, spans), strict=True)

    def _load(self, wanted: Sequence[list[tuple[int, int]]], epoch: int) -> Iterator[Any]:
        """Batches on the device. The dataset is told the epoch before loader processes get their copies of it."""
        tell = functools.partial(tell_epoch, self.dataset, epoch)
        listens = tell()
        method = start_method()
        loader: DataLoader[Any] = DataLoader(
            Seeded(task_files(), self.dataset, self.plan.seed),
            batch_sampler=wanted,
            num_workers=self.workers,
            collate_fn=self.collate,
            worker_init_fn=begin,
            pin_memory=self.like.device.type == "cuda",
            # Seeds for workers come from here instead of torch's global generator, which must not move.
            generator=torch.Generator().manual_seed(self.plan.seed),
            multiprocessing_context=method if self.workers else None,
        )
        if self.workers:
            with starting(method):
                batches = iter(loader)
        else:
            batches = iter(loader)
        for _ in wanted:
            if listens and not self.workers:
                tell()  # again, where an evaluation between two steps has told a dataset that both share another one
            yield to_device(next(batches), self.like)


def _evaluation_spans(plan: Plan, batch: int) -> Iterator[range]:
    mine = split(plan.samples, plan.world, plan.rank)
    for start in range(mine.start, mine.stop, batch):
        yield range(start, min(start + batch, mine.stop))


def make_feed(data: Any, plan: Plan, like: Like, loader_workers: int) -> Feed:
    """The feed for a task's data; arrays move to the device when they take less than half of its free memory."""
    if not isinstance(data, Arrays):
        check_loadable("the dataset", data, loader_workers)
        return DatasetFeed(data, plan, like, loader_workers)
    if like.device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(like.device)
        if data.size_bytes < free // 2:
            data = data.to(like.device)
    return ArrayFeed(data, plan, like)
