"""The probe of data loaders tells what the loop received, whatever the loader does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, Subset

from paceline.observe.model_registry import ModelRegistry
from paceline.observe.probes.data_loaders import DataLoaders
from paceline.observe.session import Session
from paceline.observe.sinks import MemorySink
from paceline.records.observed_rank import LoaderBegun, LoaderEnded


class Squares(Dataset[int]):
    """The square tells the index."""

    def __len__(self) -> int:
        return 23

    def __getitem__(self, index: int) -> int:
        return index * index


class Endless(IterableDataset[int]):
    def __iter__(self) -> Any:
        yield from range(10)


def observing(sink: MemorySink) -> Session:
    """Observes every pass over a loader."""
    return Session(sink, [DataLoaders(ModelRegistry(), every_pass=True)])


def batches(sink: MemorySink, loader: int, number: int) -> list[list[int]]:
    """Indices of a pass."""
    return [indices for *position, _, indices in sink.batches if position == [loader, number]]


def roots(batch: torch.Tensor) -> list[int]:
    """Indices, from the data themselves."""
    return [round(value**0.5) for value in batch.tolist()]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("stop_after", [None, 2])
def test_batches_are_those_that_the_loop_received_in_their_order(
    workers: int, persistent: bool, stop_after: int | None
) -> None:
    """With and without workers, kept workers, passes that end early: the data themselves are the reference."""
    loader = DataLoader(
        Squares(), batch_size=4, shuffle=True, num_workers=workers, persistent_workers=persistent and workers > 0
    )
    received: list[list[list[int]]] = []
    sink = MemorySink()
    with observing(sink) as session:
        for _ in range(3):
            received.append([])
            for number, batch in enumerate(loader, start=1):
                received[-1].append(roots(batch))
                if number == stop_after:
                    break

    passes = sink.of(LoaderBegun)
    assert [batches(sink, 0, number) for number in range(3)] == received
    assert [(each.loader, each.number, each.samples) for each in passes] == [(0, 0, 23), (0, 1, 23), (0, 2, 23)]
    assert session.failed == {}


def test_two_loaders_at_once_are_told_apart() -> None:
    """Each has its own number, in the order of their first use."""
    one, two = DataLoader(Squares(), batch_size=5), DataLoader(Squares(), batch_size=7)
    sink = MemorySink()
    with observing(sink):
        for _ in zip(one, two, strict=False):
            pass

    assert [batches(sink, loader, 0)[0] for loader in (0, 1)] == [[0, 1, 2, 3, 4], list(range(7))]


def test_a_loader_without_batches_gives_one_index_at_a_time() -> None:
    """batch_size=None: each sample is a batch of one."""
    sink = MemorySink()
    with observing(sink):
        list(DataLoader(Squares(), batch_size=None))

    assert batches(sink, 0, 0) == [[index] for index in range(23)]


def test_indices_are_those_of_the_data_set_below_a_subset() -> None:
    """A shard by hand names the samples, not their places in the shard."""
    sink = MemorySink()
    with observing(sink):
        list(DataLoader(Subset(Squares(), range(1, 23, 2)), batch_size=4))

    assert batches(sink, 0, 0) == [[1, 3, 5, 7], [9, 11, 13, 15], [17, 19, 21]]


def test_indices_of_chosen_passes_alone_are_kept_unless_all_are_wanted() -> None:
    """The first passes, then fewer and fewer."""
    sink, loader = MemorySink(), DataLoader(Squares(), batch_size=23)
    with Session(sink, [DataLoaders(ModelRegistry())]):
        for _ in range(6):
            list(loader)

    assert [number for _, number, _, _ in sink.batches] == [0, 1, 2, 4]


@pytest.mark.parametrize(
    ("loader", "why"),
    [
        (DataLoader(Endless(), batch_size=2), "iterable"),
        (DataLoader(Squares(), batch_size=2, num_workers=1, in_order=False), "in_order"),
    ],
)
def test_what_cannot_be_seen_is_said(loader: Any, why: str) -> None:
    """No guess where there is no index, or no order."""
    sink = MemorySink()
    with observing(sink):
        list(loader)

    (ended,) = sink.of(LoaderEnded)
    assert sink.batches == []
    assert why in ended.not_observed


def test_the_loader_is_left_as_it_was() -> None:
    """Watching changes neither the samples nor the random numbers, and ends without a trace."""
    methods = [vars(DataLoader)["__iter__"], *vars(torch.utils.data.dataloader._BaseDataLoaderIter).values()]

    def run() -> list[list[int]]:
        torch.manual_seed(3)
        return [roots(batch) for batch in DataLoader(Squares(), batch_size=4, sampler=RandomSampler(Squares()))]

    alone = run()
    with observing(MemorySink()):
        watched = run()

    assert watched == alone
    assert methods == [vars(DataLoader)["__iter__"], *vars(torch.utils.data.dataloader._BaseDataLoaderIter).values()]


def test_a_loader_whose_samples_have_names_is_not_observed() -> None:
    """A sampler of things that are no indices: the loop gets its batches, the session says what went wrong."""

    class ByName(Dataset[str]):
        def __getitem__(self, name: str) -> str:
            return name

    sink = MemorySink()
    with observing(sink):
        received = list(DataLoader(ByName(), batch_size=1, sampler=["a", "b"]))

    assert received == [["a"], ["b"]]
    (ended,) = sink.of(LoaderEnded)
    assert ended.not_observed == "samples are not named by numbers"
