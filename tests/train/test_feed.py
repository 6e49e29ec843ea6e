"""Batches of one rank: two feeds that give the same, from any batch of any epoch on."""

from __future__ import annotations

import random
from collections import UserDict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import Subset

from paceline.parallel.partition import epoch_order
from paceline.tasks.data.arrays import Arrays, Draws, Like
from paceline.train.batch_plan import Plan
from paceline.train.feed import ArrayFeed, DatasetFeed, make_feed

LIKE = Like(torch.device("cpu"), torch.float64, channels_last=False)
COUNTS = st.integers(1, 40)


def columns(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sample i holds i and -i, and i as a whole number."""
    numbers = torch.arange(samples)
    return torch.stack([numbers, -numbers], dim=1).double(), numbers


class Rows:
    """Map-style data, also with random numbers of all three generators in every sample."""

    def __init__(self, samples: int, noisy: bool = False) -> None:
        self.x, self.y = columns(samples)
        self.noisy = noisy

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        noise = random.random() + np.random.standard_normal() + torch.rand(()).item() if self.noisy else 0.0
        return self.x[index] + noise, self.y[index]


def drawn(feed: Any, epoch: int, first: int = 0) -> list[list[Any]]:
    """Batches as plain lists, None where the rank has no sample."""
    return [
        [None if micro is None else [part.tolist() for part in micro] for micro in batch]
        for batch in feed.epoch(epoch, first)
    ]


@settings(max_examples=40)
@given(samples=COUNTS, batch=COUNTS, world=st.integers(1, 4), accumulation=st.integers(1, 3), epoch=st.integers(0, 3))
def test_both_feeds_give_the_ranks_part_of_the_epochs_order(samples, batch, world, accumulation, epoch) -> None:
    """Together the ranks give `order[kB:(k+1)B]`, micro-batch by micro-batch; both feeds alike."""
    order = epoch_order(samples, 5, epoch).tolist()
    parts: dict[tuple[int, int], list[int]] = {}

    for rank in range(world):
        plan = Plan(samples, batch, accumulation, 5, world, rank)
        from_arrays = drawn(ArrayFeed(Arrays(*columns(samples)), plan, LIKE), epoch)
        from_rows = drawn(DatasetFeed(Rows(samples), plan, LIKE, workers=0), epoch)

        assert from_arrays == from_rows
        assert all(len(micro) == accumulation for micro in from_arrays)
        for number, micro_batches in enumerate(from_arrays):
            for position, micro in enumerate(micro_batches):
                parts.setdefault((number, position), []).extend(micro[1] if micro else [])

    batches = [[i for m in range(accumulation) for i in parts[k, m]] for k in range(-(-samples // batch))]
    assert batches == [order[start : start + batch] for start in range(0, samples, batch)]


@settings(max_examples=30)
@given(samples=COUNTS, batch=COUNTS, data=st.data())
def test_starting_in_mid_epoch_gives_the_tail_of_the_whole_epoch(samples: int, batch: int, data: st.DataObject) -> None:
    """Random samples included: all that resuming needs."""
    plan = Plan(samples, batch, 2, 1, 2, data.draw(st.integers(0, 1)))
    first = data.draw(st.integers(0, plan.steps_per_epoch - 1))
    arrays = Arrays(*columns(samples), prepare=with_draws)

    for feed in (ArrayFeed(arrays, plan, LIKE), DatasetFeed(Rows(samples, noisy=True), plan, LIKE, workers=0)):
        assert drawn(feed, 3, first) == drawn(feed, 3)[first:]


def with_draws(rows: tuple[torch.Tensor, ...], draws: Draws | None, like: Like) -> tuple[torch.Tensor, ...]:
    """A preparation whose randomness shows."""
    del like
    return rows if draws is None else (rows[0] + draws.uniform()[:, None] + draws.integers(9)[:, None], rows[1])


@settings(max_examples=25)
@given(samples=COUNTS, batch=COUNTS, world=st.integers(2, 4), accumulation=st.integers(1, 3))
def test_what_is_random_in_a_sample_does_not_depend_on_who_has_it(samples, batch, world, accumulation) -> None:
    """Any number of ranks and micro-batches augments each sample of an epoch alike, in both feeds."""

    def by_sample(world: int, accumulation: int, kind: str) -> dict[int, list[float]]:
        found: dict[int, list[float]] = {}
        for rank in range(world):
            plan = Plan(samples, batch, accumulation, 1, world, rank)
            arrays = Arrays(*columns(samples), prepare=with_draws)
            feed = (
                ArrayFeed(arrays, plan, LIKE) if kind == "arrays" else DatasetFeed(Rows(samples, True), plan, LIKE, 0)
            )
            for micro in (micro for batch in drawn(feed, 2) for micro in batch if micro):
                found.update(zip(micro[1], micro[0], strict=True))
        return found

    for kind in ("arrays", "rows"):
        assert by_sample(world, accumulation, kind) == by_sample(1, 1, kind)


def test_augmentation_changes_from_epoch_to_epoch_and_with_the_seed() -> None:
    """The same sample, three times."""

    def noise_of_sample_zero(seed: int, epoch: int, feed: str) -> float:
        plan = Plan(6, 6, 1, seed, 1, 0)
        made = (
            ArrayFeed(Arrays(*columns(6), prepare=with_draws), plan, LIKE)
            if feed == "arrays"
            else DatasetFeed(Rows(6, noisy=True), plan, LIKE, 0)
        )
        ((micro,),) = drawn(made, epoch)
        return micro[0][micro[1].index(0)][0]

    for feed in ("arrays", "rows"):
        values = {noise_of_sample_zero(seed, epoch, feed) for seed, epoch in ((1, 0), (1, 1), (2, 0))}
        assert len(values) == 3


def states() -> list[Any]:
    """Of the three global generators."""
    return [
        random.getstate(),
        np.random.get_state()[1].tolist(),
        np.random.get_state()[2:],
        torch.get_rng_state().tolist(),
    ]


@pytest.mark.serial
def test_loader_processes_change_neither_the_samples_nor_the_generators() -> None:
    """Two worker processes give what none gives, random samples included, and a resumed tail as well."""
    plan = Plan(23, 8, 2, 1, 1, 0)
    rows = Rows(23, noisy=True)
    before = states()

    alone = drawn(DatasetFeed(rows, plan, LIKE, workers=0), 1)
    shared = drawn(DatasetFeed(rows, plan, LIKE, workers=2), 1)
    tail = drawn(DatasetFeed(rows, plan, LIKE, workers=1), 1, 2)

    assert shared == alone
    assert tail == alone[2:]
    assert states() == before


def test_a_feed_draws_nothing_from_the_global_generators() -> None:
    """A run's dropout does not depend on how its data are read."""
    feeds = [
        ArrayFeed(Arrays(*columns(9), prepare=with_draws), Plan(9, 4, 1, 1, 1, 0), LIKE),
        DatasetFeed(Rows(9, noisy=True), Plan(9, 4, 1, 1, 1, 0), LIKE, 0),
    ]
    for feed in feeds:
        before = states()

        drawn(feed, 0)
        feed.sample()
        list(feed.evaluation(2))

        assert states() == before


@settings(max_examples=30)
@given(samples=COUNTS, world=st.integers(1, 5), size=st.integers(1, 9))
def test_evaluation_gives_every_sample_once_in_order(samples: int, world: int, size: int) -> None:
    """Over the ranks, in pieces of at most the size that was asked for, unaugmented."""
    for make in (
        lambda plan: ArrayFeed(Arrays(*columns(samples), prepare=with_draws), plan, LIKE),
        lambda plan: DatasetFeed(Rows(samples), plan, LIKE, 0),
    ):
        pieces = [
            batch for rank in range(world) for batch in make(Plan(samples, 64, 1, 0, world, rank)).evaluation(size)
        ]

        assert [i for piece, _ in pieces for i in piece[1].tolist()] == list(range(samples))
        assert [row[0] for piece, _ in pieces for row in piece[0].tolist()] == list(range(samples))
        assert all(1 <= len(piece[1]) == length <= size for piece, length in pieces)


@settings(max_examples=30)
@given(samples=COUNTS, batch=COUNTS, world=st.integers(1, 5), accumulation=st.integers(1, 3))
def test_the_settling_batch_has_the_usual_size_on_every_rank(samples, batch, world, accumulation) -> None:
    """That of the rank's first micro-batch, and one sample where it has none."""
    for rank in range(world):
        plan = Plan(samples, batch, accumulation, 0, world, rank)
        feed = ArrayFeed(Arrays(*columns(samples)), plan, LIKE)
        first = next(feed.epoch(0, 0))[0]

        assert len(feed.sample()[1]) == (1 if first is None else len(first[1]))
        assert len(DatasetFeed(Rows(samples), plan, LIKE, 0).sample()[1]) == len(feed.sample()[1])
        assert feed.sample(1)[1].tolist() == DatasetFeed(Rows(samples), plan, LIKE, 0).sample(1)[1].tolist() == [0]


def test_batches_may_be_dictionaries_and_hold_text() -> None:
    """Tensors move and take the dtype, floats only; images get channels last where that is wanted; the rest stays."""

    class Named:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> dict[str, Any]:
            return {"image": torch.ones(3, 2, 2), "label": index, "name": f"n{index}"}

    like = Like(torch.device("cpu"), torch.float64, channels_last=True)
    feed = make_feed(Named(), Plan(4, 4, 1, 0, 1, 0), like, 0)

    batch = feed.sample()

    assert batch["image"].dtype == torch.float64
    assert batch["image"].is_contiguous(memory_format=torch.channels_last)
    assert batch["label"].tolist() == [0, 1, 2, 3]
    assert batch["name"] == ["n0", "n1", "n2", "n3"]


def test_a_data_set_may_bring_its_own_collate_function() -> None:
    """Text of different lengths, for instance."""

    class Words:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> list[int]:
            return [index] * (index + 1)

        def collate(self, rows: list[list[int]]) -> torch.Tensor:
            return torch.tensor([number for row in rows for number in row])

    feed = make_feed(Words(), Plan(3, 3, 1, 0, 1, 0), LIKE, 0)

    assert isinstance(feed, DatasetFeed)
    assert feed.sample().tolist() == [0, 1, 1, 2, 2, 2]
    assert isinstance(make_feed(Arrays(np.zeros(3)), Plan(3, 3, 1, 0, 1, 0), LIKE, 0), ArrayFeed)


class Mixture:
    """Gives what the epoch says; with `shared` it has been told by somebody else in between."""

    def __init__(self, samples: int) -> None:
        self.samples, self.epoch = samples, -1

    def set_epoch(self, epoch: int) -> None:
        """Mix anew."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(100 * self.epoch + index)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.serial)])
def test_a_dataset_knows_the_epoch_of_each_sample_also_after_a_resume_and_between_evaluations(workers: int) -> None:
    """An evaluation between two steps is of epoch 0, and training goes on in its own, though both share the dataset."""
    data = Subset(Mixture(9), range(9))
    plan = Plan(9, 2, 1, 1, 1, 0)
    feed = DatasetFeed(data, plan, LIKE, workers)

    for epoch, first in ((0, 0), (1, 0), (2, 3), (5, 1)):
        batches = feed.epoch(epoch, first)
        seen = next(batches)[0].tolist()
        evaluated = [int(x) for batch, _ in feed.evaluation(4) for x in batch]
        seen += [int(x) for (batch,) in batches for x in batch]

        assert sorted(evaluated) == list(range(9))
        assert {x // 100 for x in seen} == {epoch}
        assert [x % 100 for x in seen] == epoch_order(9, 1, epoch)[2 * first :].tolist()


class Padded:
    """Sequences whose batches hold no tensor with the samples first."""

    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((index + 1, 2), float(index))

    def collate(self, rows: list[torch.Tensor]) -> dict[str, Any]:
        """Packed, padded, joined along time, and in words."""
        return {
            "packed": pack_sequence(rows, enforce_sorted=False),
            "padded": pad_sequence(rows),
            "joined": torch.cat(rows),
            "words": [str(len(row)) for row in rows],
        }


class OnlyWords(Padded):
    """Batches without a tensor, in an object that torch does not know."""

    def collate(self, rows: list[torch.Tensor]) -> UserDict[str, list[str]]:
        """In words only."""
        return UserDict(words=[str(len(row)) for row in rows])


@pytest.mark.parametrize("data", [Padded(), OnlyWords()], ids=["padded", "words"])
@pytest.mark.parametrize("world", [1, 3])
def test_the_length_of_a_batch_is_known_whatever_its_form(data: Any, world: int) -> None:
    """Seven samples in pieces of 2, however they are packed."""
    found = [
        (len(batch["words"]), length)
        for rank in range(world)
        for batch, length in DatasetFeed(data, Plan(7, 4, 1, 0, world, rank), LIKE, 0).evaluation(2)
    ]

    assert all(one == other for one, other in found)
    assert sum(length for _, length in found) == 7


def test_packed_sequences_take_the_dtype_and_keep_their_lengths() -> None:
    """They are no tuples to torch's `to`, and their lengths stay on the CPU."""
    packed = DatasetFeed(Padded(), Plan(7, 4, 1, 0, 1, 0), LIKE, 0).sample(3)["packed"]

    assert packed.data.dtype == torch.float64
    assert packed.batch_sizes.tolist() == [3, 2, 1]
    assert torch.equal(pad_packed_sequence(packed)[1], torch.tensor([1, 2, 3]))
