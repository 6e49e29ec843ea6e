"""The ledger of a loader tells what the loop received, whatever the loader does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler

from paceline.observe.loaders import LoaderLedger


class Squares(Dataset[int]):
    """The square tells the index."""

    def __len__(self) -> int:
        return 23

    def __getitem__(self, index: int) -> int:
        return index * index


class Endless(IterableDataset[int]):
    def __iter__(self) -> Any:
        yield from range(10)


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
    with LoaderLedger() as ledger:
        for _ in range(3):
            received.append([])
            for number, batch in enumerate(loader, start=1):
                received[-1].append(roots(batch))
                if number == stop_after:
                    break

    assert [each.batches for each in ledger.passes] == received
    assert [(each.loader, each.number, each.samples) for each in ledger.passes] == [(0, 0, 23), (0, 1, 23), (0, 2, 23)]
    assert not ledger.trouble


def test_two_loaders_at_once_are_told_apart() -> None:
    """Each has its own number, in the order of their first use."""
    one, two = DataLoader(Squares(), batch_size=5), DataLoader(Squares(), batch_size=7)
    with LoaderLedger() as ledger:
        for _ in zip(one, two, strict=False):
            pass

    assert [(each.loader, each.batches[0]) for each in ledger.passes] == [(0, [0, 1, 2, 3, 4]), (1, list(range(7)))]


def test_a_loader_without_batches_gives_one_index_at_a_time() -> None:
    """batch_size=None: each sample is a batch of one."""
    with LoaderLedger() as ledger:
        list(DataLoader(Squares(), batch_size=None))

    assert ledger.passes[0].batches == [[index] for index in range(23)]


@pytest.mark.parametrize(
    ("loader", "why"),
    [
        (DataLoader(Endless(), batch_size=2), "iterable"),
        (DataLoader(Squares(), batch_size=2, num_workers=1, in_order=False), "in_order"),
    ],
)
def test_what_cannot_be_seen_is_said(loader: Any, why: str) -> None:
    """No guess where there is no index, or no order."""
    with LoaderLedger() as ledger:
        list(loader)

    (seen,) = ledger.passes
    assert seen.batches == []
    assert why in seen.not_observed.why


def test_the_loader_is_left_as_it_was() -> None:
    """Watching changes neither the samples nor the random numbers, and ends without a trace."""
    methods = [vars(DataLoader)["__iter__"], *vars(torch.utils.data.dataloader._BaseDataLoaderIter).values()]

    def run() -> list[list[int]]:
        torch.manual_seed(3)
        return [roots(batch) for batch in DataLoader(Squares(), batch_size=4, sampler=RandomSampler(Squares()))]

    alone = run()
    with LoaderLedger():
        watched = run()

    assert watched == alone
    assert methods == [vars(DataLoader)["__iter__"], *vars(torch.utils.data.dataloader._BaseDataLoaderIter).values()]


def test_trouble_ends_the_watching_and_not_the_program() -> None:
    """A sampler of things that are no indices: the loop gets its batches, the ledger says what went wrong."""

    class ByName(Dataset[str]):
        def __getitem__(self, name: str) -> str:
            return name

    with LoaderLedger() as ledger:
        received = list(DataLoader(ByName(), batch_size=1, sampler=["a", "b"]))

    assert received == [["a"], ["b"]]
    assert "invalid literal" in ledger.trouble
