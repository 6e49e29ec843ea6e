"""The ledger holds the samples that the loop received, batch by batch, whichever way a loader comes by them."""

from __future__ import annotations

import gc
import hashlib
import operator
from array import array
from collections.abc import Iterator
from functools import reduce

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.optim import SGD
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Subset,
    TensorDataset,
)

from paceline.records.observed_rank import InputSeen, LoaderBegun, LoaderEnded, ObservedStep
from paceline.records.ring import BATCHES
from tests.observe.watched import Watched, backward, line_of, watching


class Numbers(Dataset):
    """Each sample is its own index, so batches show what was received."""

    def __init__(self, length: int, scale: int = 1) -> None:
        self.length, self.scale = length, scale

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index * self.scale


class Transformed(Dataset):
    """The samples of another data set, changed."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> int:
        return self.dataset[index]


class Stream(IterableDataset):
    """Ten numbers in order."""

    def __iter__(self):
        return iter(range(10))


def ledger(watched: Watched) -> dict[tuple[int, int], list[list[int]]]:
    """Batches by loader and pass; their numbers have no gaps."""
    found: dict[tuple[int, int], list[list[int]]] = {}
    for loader, number, batch, indices in watched.sink.batches:
        batches = found.setdefault((loader, number), [])
        assert batch == len(batches)
        batches.append(indices)
    return found


def received(loader: DataLoader) -> list[list[int]]:
    """A pass over a loader of `Numbers`."""
    return [batch.tolist() for batch in loader]


def test_each_batch_advances_the_rank_in_evaluation_too(watched: Watched) -> None:
    """Two passes of three batches, one of them without gradients."""
    loader = DataLoader(Numbers(6), batch_size=2)
    list(loader)
    with torch.no_grad():
        list(loader)

    assert watched.sink.counters[BATCHES] == 6


@pytest.mark.parametrize("workers", [0, 2])
def test_the_ledger_is_what_the_loop_received(watched: Watched, workers: int) -> None:
    """Shuffled, over two passes; workers read batches ahead, which do not count before they are received."""
    loader = DataLoader(Numbers(11), batch_size=3, shuffle=True, num_workers=workers)

    passes = [received(loader), received(loader)]

    assert ledger(watched) == {(0, 0): passes[0], (0, 1): passes[1]}
    first, second = watched.of(LoaderEnded)
    for ended, batches in ((first, passes[0]), (second, passes[1])):
        assert (ended.batches, ended.samples, ended.exhausted, ended.recorded) == (4, 11, True, True)
        order = b"".join(array("q", batch).tobytes() for batch in batches)
        assert ended.order == hashlib.sha256(order).hexdigest()[:16]
        assert not ended.increasing


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_a_loop_that_is_left_early_received_only_what_it_took(watched: Watched, workers: int, persistent: bool) -> None:
    """The next pass begins anew, also with workers that had read further ahead."""
    loader = DataLoader(Numbers(20), batch_size=2, num_workers=workers, persistent_workers=persistent)
    for place, _ in enumerate(loader):
        if place == 2:
            break
    rest = received(loader)
    watched.ends()

    assert ledger(watched) == {(0, 0): [[0, 1], [2, 3], [4, 5]], (0, 1): rest}
    assert [(each.batches, each.samples, each.exhausted) for each in watched.of(LoaderEnded)] == [
        (3, 6, False),
        (10, 20, True),
    ]


def test_a_pass_that_the_script_ends_in_is_closed(watched: Watched) -> None:
    """By the end of the script."""
    for _ in DataLoader(Numbers(4)):
        break
    watched.ends()

    assert [(each.batches, each.exhausted) for each in watched.of(LoaderEnded)] == [(1, False)]


@settings(max_examples=25)
@given(st.lists(st.lists(st.integers(0, 30), min_size=31, max_size=40), max_size=3), st.booleans())
def test_indices_are_those_of_the_root_below_subsets_and_transforms(layers, transformed) -> None:
    """The reference: a batch holds the root's own indices."""
    dataset: Dataset = Numbers(40)
    for indices in layers:
        dataset = Subset(Transformed(dataset) if transformed else dataset, indices)
    with watching() as watched:
        batches = received(DataLoader(dataset, batch_size=4))

    assert ledger(watched) == {(0, 0): batches}
    (begun,) = watched.of(LoaderBegun)
    assert (begun.dataset, begun.root_samples, begun.samples) == ("Numbers", 40, len(dataset))
    assert (begun.subset is None) is (not layers)


def test_random_split_is_a_subset_whose_digest_tells_splits_apart() -> None:
    """Ranks that split with other seeds train on what others evaluate on."""

    def digest(seed: int) -> str | None:
        with watching() as watched:
            part, _ = torch.utils.data.random_split(Numbers(30), [20, 10], torch.Generator().manual_seed(seed))
            received(DataLoader(part))
        return watched.of(LoaderBegun)[0].subset

    assert digest(1) == digest(1) != digest(2)


def test_batches_of_the_scripts_own_sampler_of_batches(watched: Watched) -> None:
    """Of different sizes; what chooses the samples inside is named."""
    sampler = BatchSampler(RandomSampler(Numbers(9)), 4, drop_last=False)
    loader = DataLoader(Numbers(9), batch_sampler=sampler)
    listed = DataLoader(Numbers(9), batch_sampler=[[3, 1], [2], [8, 7, 6]])

    first, second = received(loader), received(listed)

    assert ledger(watched) == {(0, 0): first, (1, 0): second}
    assert second == [[3, 1], [2], [8, 7, 6]]
    assert [each.sampler for each in watched.of(LoaderBegun)] == ["RandomSampler", "list"]


def test_a_loader_without_batches_gives_one_index_at_a_time(watched: Watched) -> None:
    """`batch_size=None`."""
    assert list(DataLoader(Numbers(3), batch_size=None)) == [0, 1, 2]
    assert ledger(watched) == {(0, 0): [[0], [1], [2]]}


@pytest.mark.parametrize("workers", [0, 1])
def test_an_iterable_data_set_has_no_indices_and_its_samples_are_counted(watched: Watched, workers: int) -> None:
    """That is said, and nothing is kept for what nobody will ask for."""
    loader = DataLoader(Stream(), batch_size=4, num_workers=workers)
    iterator = iter(loader)
    batches = list(iterator)

    (begun,), (ended,) = watched.of(LoaderBegun), watched.of(LoaderEnded)
    assert len(batches) == 3
    assert begun.iterable
    assert (ended.batches, ended.samples, ended.order, ended.recorded) == (3, 10, None, False)
    assert ended.not_observed == "an iterable data set has no sample indices"
    assert ledger(watched) == {}


def test_what_an_iterable_data_set_asks_for_is_not_kept(watched: Watched) -> None:
    """A stream may be endless."""
    iterator = iter(DataLoader(Stream(), batch_size=1))
    for _ in range(8):
        next(iterator)

    assert not hasattr(iterator, "_paceline_chosen")


def test_a_sampler_may_change_the_list_that_it_gave_out(watched: Watched) -> None:
    """Its batches are noted as they are received."""

    class Reusing(BatchSampler):
        def __iter__(self) -> Iterator[list[int]]:
            batch: list[int] = []
            for index in self.sampler:
                batch.append(index)
                if len(batch) == 2:
                    yield batch
                    batch.clear()

    batches = received(DataLoader(Numbers(8), batch_sampler=Reusing(range(8), 2, drop_last=True)))

    assert ledger(watched) == {(0, 0): batches}
    assert len(batches) == 4


def test_indices_of_a_pass_that_was_dropped_are_those_that_were_received(watched: Watched) -> None:
    """Batches that were not noted before the script dropped the iterator, and one that a worker read ahead."""
    iterator = iter(DataLoader(Numbers(20), batch_size=2, num_workers=1))
    batches = [next(iterator).tolist() for _ in range(3)]
    del iterator
    gc.collect()
    watched.ends()

    assert ledger(watched) == {(0, 0): batches}


def test_samples_that_are_named_otherwise_are_counted_and_their_names_not_kept(watched: Watched) -> None:
    """As files by their paths."""
    names = [f"image-{number}" for number in range(6)]
    iterator = iter(DataLoader(dict.fromkeys(names, 1), sampler=names, batch_size=2))
    batches = list(iterator)

    (ended,) = watched.of(LoaderEnded)
    assert len(batches) == 3
    assert (ended.samples, ended.order, ended.not_observed) == (6, None, "samples are not named by numbers")
    assert iterator._paceline_chosen == {}


def test_samples_count_for_the_training_where_gradients_were_enabled(watched: Watched) -> None:
    """Also when that changes within a pass, before its batches were noted."""
    iterator = iter(DataLoader(Numbers(20), batch_size=2))
    for enabled in (True, True, False, False, False, True):
        with torch.set_grad_enabled(enabled):
            next(iterator)
    watched.ends()

    (ended,) = watched.of(LoaderEnded)
    assert (watched.progress.samples, ended.samples, ended.with_gradients) == (6, 12, True)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_iterator_that_the_script_drops_closes_its_sampler(watched: Watched, workers: int) -> None:
    """As without the observer, although the observer reads the sampler as well."""
    closed = []

    class Closing(list):
        def __iter__(self) -> Iterator[int]:
            try:
                yield from range(100)
            finally:
                closed.append(True)

    iterator = iter(DataLoader(Numbers(100), batch_size=1, sampler=Closing(), num_workers=workers))
    next(iterator)
    assert not closed
    del iterator
    gc.collect()

    assert closed == [True]


def test_passes_that_were_never_recorded_have_an_order_all_the_same(watched: Watched) -> None:
    """The first three passes are in the ledger, then the fifth, the eighth...; the order of all is digested."""
    loader = DataLoader(Numbers(6), batch_size=2)
    for _ in range(6):
        received(loader)

    assert [number for _, number in ledger(watched)] == [0, 1, 2, 4]
    ended = watched.of(LoaderEnded)
    assert [each.recorded for each in ended] == [True, True, True, False, True, False]
    assert len({each.order for each in ended}) == 1
    assert all(each.increasing for each in ended)


def test_what_chooses_samples_is_described(watched: Watched) -> None:
    """A DistributedSampler with its facts, and the epoch that the script set last."""
    data = Numbers(10)
    sampler = DistributedSampler(data, num_replicas=2, rank=1, seed=5)
    loader = DataLoader(data, batch_size=2, sampler=sampler)  # made here
    received(loader)
    sampler.set_epoch(3)
    received(loader)  # loop here

    first, second = watched.of(LoaderBegun)
    assert first.sampler == "DistributedSampler"
    assert {**first.sampler_facts, "epoch": 3} == second.sampler_facts
    assert second.sampler_facts == {
        "num_replicas": 2,
        "rank": 1,
        "seed": 5,
        "epoch": 3,
        "shuffle": True,
        "drop_last": False,
        "num_samples": 5,
        "total_size": 10,
    }
    assert (first.set_epoch, second.set_epoch) == (None, 3)
    assert (first.batch_size, first.workers, first.persistent, first.loader_class) == (2, 0, False, "DataLoader")
    assert first.place.line == line_of("made here", __file__)


@pytest.mark.parametrize("used", [True, False])
def test_a_distributed_sampler_that_no_loader_uses_is_counted(watched: Watched, used: bool) -> None:
    """The script made it and forgot to hand it over."""
    data = Numbers(4)
    sampler = DistributedSampler(data, num_replicas=2, rank=0)
    received(DataLoader(data, sampler=sampler if used else None))

    assert watched.of(LoaderBegun)[0].unused_samplers == (0 if used else 1)


def test_loaders_of_one_data_set_have_its_number(watched: Watched) -> None:
    """And equal contents have equal digests on every rank, in another order only the unordered one."""
    texts = ["one", "two", "three"]
    for data in (texts, texts, list(texts), ["three", "two", "one"]):
        list(DataLoader(data))

    begun = watched.of(LoaderBegun)
    assert [each.loader for each in begun] == [0, 1, 2, 3]
    assert [each.data for each in begun] == [0, 0, 1, 2]
    assert begun[0].content == begun[2].content != begun[3].content
    assert begun[0].content_unordered == begun[3].content_unordered


def test_plain_attributes_of_a_data_set_have_a_digest(watched: Watched) -> None:
    """As a path, a size or a seed that differs between ranks."""
    for data in (Numbers(3), Numbers(3), Numbers(3, scale=2)):
        list(DataLoader(data))

    first, same, other = (each.attributes for each in watched.of(LoaderBegun))
    assert first == same != other


def test_passes_that_train_and_passes_that_evaluate_are_told_apart_by_what_happened_in_them(watched: Watched) -> None:
    """Four backward passes in the first, none in the second; samples count only where gradients are enabled."""
    model = nn.Linear(4, 2)
    optimizer = SGD(model.parameters(), 0.1)
    for (batch,) in DataLoader(TensorDataset(torch.randn(8, 4)), batch_size=2):
        model(batch).sum().backward()
        optimizer.step()
    with torch.no_grad():
        for (batch,) in DataLoader(TensorDataset(torch.randn(6, 4)), batch_size=2):
            model(batch)

    trained, evaluated = watched.of(LoaderEnded)
    assert (trained.backwards, trained.samples, evaluated.backwards, evaluated.samples) == (4, 8, 0, 6)
    assert watched.progress.samples == 8


def test_an_evaluation_that_stays_open_while_training_goes_on_is_no_training(watched: Watched) -> None:
    """Its batches are taken without gradients; the backward passes between them are those of another loader."""
    model = nn.Linear(4, 2)
    held_out = iter(DataLoader(TensorDataset(torch.randn(6, 4)), batch_size=2))
    for (batch,) in DataLoader(TensorDataset(torch.randn(8, 4)), batch_size=2):
        model(batch).sum().backward()
        with torch.no_grad():
            next(held_out, None)

    evaluated, trained = sorted(watched.of(LoaderEnded), key=lambda each: each.loader)
    assert (evaluated.exhausted, evaluated.backwards > 0, evaluated.trained) == (True, True, False)
    assert (trained.backwards, trained.trained) == (4, True)


def test_without_a_wrapped_model_batches_themselves_say_what_was_trained_on(watched: Watched) -> None:
    """At most four for a step, so that a script which never takes one is not written down for ever."""
    data = torch.randn(24, 4)
    for _ in DataLoader(TensorDataset(data), batch_size=2):
        pass
    model = nn.Linear(4, 2)
    optimizer = SGD(model.parameters(), 0.1)
    for (batch,) in DataLoader(TensorDataset(data[:4]), batch_size=2):
        model(batch).sum().backward()
        optimizer.step()

    seen = watched.of(InputSeen)
    assert [(each.step, each.loader, each.batch, each.rows) for each in seen] == [
        *((1, 0, batch, 2) for batch in range(4)),
        (2, 1, 1, 2),
    ]
    assert all(each.wrapper is None for each in seen)


def test_errors_of_a_data_set_reach_the_script_and_end_the_pass(watched: Watched) -> None:
    """With what was received before."""

    class Broken(Numbers):
        def __getitem__(self, index: int) -> int:
            if index == 2:
                raise ValueError("bad sample")
            return index

    with pytest.raises(ValueError, match="bad sample"):
        received(DataLoader(Broken(4)))

    assert ledger(watched) == {(0, 0): [[0], [1]]}
    assert [(each.batches, each.exhausted) for each in watched.of(LoaderEnded)] == [(2, False)]


def test_a_data_set_without_a_length_and_one_whose_length_fails_are_described(watched: Watched) -> None:
    """What a user's method raises is no fault of the observer."""

    class Unknown(Numbers):
        def __len__(self) -> int:
            raise RuntimeError("the index was not built")

    list(DataLoader(Unknown(3), sampler=[0, 2]))

    assert watched.of(LoaderBegun)[0].samples is None
    assert reduce(operator.add, ledger(watched)[0, 0]) == [0, 2]


def test_a_batch_that_trains_a_model_says_where_it_came_from(watched: Watched) -> None:
    """Loader, pass and batch stand in the step."""
    model = nn.Linear(4, 2)
    optimizer = SGD(model.parameters(), 0.1)
    loader = DataLoader(TensorDataset(torch.randn(4, 4)), batch_size=2)
    for _ in range(2):
        for _ in loader:
            backward(model)
            optimizer.step()

    assert [(each.loader, each.number, each.batch) for each in watched.of(ObservedStep)] == [
        (0, 0, 0),
        (0, 0, 1),
        (0, 1, 0),
        (0, 1, 1),
    ]
