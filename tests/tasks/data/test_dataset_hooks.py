"""What data a task may give, and how they hear of the epoch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, StackDataset, Subset, TensorDataset

from paceline.records.errors import PacelineError
from paceline.tasks.contract import TaskSource, check_task
from paceline.tasks.data.arrays import Arrays
from paceline.tasks.data.dataset_hooks import tell_epoch
from paceline.tasks.task import Loss, Task


class Rows(Dataset):
    """Map-style, and told the epoch."""

    def __init__(self, samples: int = 4, grows: bool = False) -> None:
        self.samples, self.grows, self.told = samples, grows, []

    def set_epoch(self, epoch: int) -> None:
        """Remember it."""
        self.told.append(epoch)

    def __len__(self) -> int:
        return self.samples + (len(self.told) if self.grows else 0)

    def __getitem__(self, index: int) -> int:
        return index


class Stream(IterableDataset):
    """Iterable."""

    def __iter__(self):
        yield 1


class Sized(Stream):
    """Iterable, and it knows how many there are."""

    def __len__(self) -> int:
        return 3


class Shards:
    """As webdataset's: iterable, of no class of torch's."""

    def __iter__(self):
        yield 1


class Both(Sized):
    """Iterable for others, and by index as well."""

    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.parametrize(
    "data",
    [Arrays(np.zeros((3, 2))), Rows(), Both(), [(1, 2), (3, 4)], Subset(Rows(), [0, 1]), TensorDataset(torch.zeros(3))],
    ids=lambda data: type(data).__name__,
)
def test_arrays_and_whatever_has_a_length_and_items_are_taken(data: object) -> None:
    """Lists of samples, too, and an iterable that has items as well."""
    check_task(task_with(data), TaskSource())


@pytest.mark.parametrize("field", ["train_data", "eval_data"])
@pytest.mark.parametrize("data", [Stream(), Sized(), Shards(), (n for n in range(3)), iter([1])])
def test_an_iterable_dataset_is_refused_with_the_reason_and_a_way_out(data: object, field: str) -> None:
    """Whoever made it, whether or not it knows its length; before a sample is read."""
    with pytest.raises(PacelineError) as caught:
        check_task(replace(task_with(Rows()), **{field: data}), TaskSource())

    assert f"{field} is a" in caught.value.what
    assert "an iterable dataset" in caught.value.what
    assert "only runs forward" in caught.value.why
    assert "list(stream)" in caught.value.hint


def task_with(data: object) -> Task:
    """A task that trains and is evaluated on these data."""
    return Task("mine", nn.Identity, lambda model, batch: Loss(batch.sum(), 1), data, data)


def test_wrapped_datasets_and_collate_functions_are_told_the_epoch_once_each() -> None:
    """Those inside of Subset, ConcatDataset and StackDataset; an outer one that listens answers for its inner ones."""

    class Collate(Rows):
        def __call__(self, rows: list[int]) -> list[int]:
            return rows

    one, two, three, four, collate = Rows(), Rows(), Rows(4), Rows(4), Collate()
    subset = Subset(ConcatDataset([one, Subset(two, [0, 1]), one]), [0, 1])
    subset.collate = collate
    outer = Rows()
    outer.dataset = three

    for epoch in (0, 1, 1, 3):
        assert tell_epoch(subset, epoch)
        tell_epoch(outer, epoch)
        tell_epoch(StackDataset(a=four), epoch)

    assert [each.told for each in (one, two, collate, outer, four)] == [[0, 1, 3]] * 5
    assert three.told == []
    assert not tell_epoch(TensorDataset(torch.zeros(3)), 0)


def test_a_prepare_function_of_arrays_is_told_the_epoch() -> None:
    """As a collate function is, where it is an object that wants to know."""

    class Prepare(Rows):
        def __call__(self, columns, draws, like):
            return columns

    prepare = Prepare()

    tell_epoch(Arrays(np.zeros(3), prepare=prepare), 2)

    assert prepare.told == [2]


def test_a_dataset_whose_length_changes_with_the_epoch_is_refused() -> None:
    """Steps are planned on one length."""
    with pytest.raises(PacelineError, match=r"Rows has 4 samples, and 5 after set_epoch\(0\)"):
        tell_epoch(Rows(grows=True), 0)
