"""Held-out samples: fixed, disjoint, and never trained on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from paceline.records.errors import PacelineError
from paceline.tasks.classify import cross_entropy
from paceline.tasks.data.arrays import Arrays, Like
from paceline.tasks.holdout import hold_out
from paceline.tasks.task import Task

LIKE = Like(torch.device("cpu"), torch.float32, channels_last=False)


class Rows:
    """A map-style dataset with its own collate."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(float(index))

    def collate(self, rows: list[torch.Tensor]) -> torch.Tensor:
        """Marks what went through it."""
        return torch.stack(rows) + 100


def task(data: object) -> Task:
    """On `data`."""
    return Task("t", lambda: torch.nn.Linear(1, 1), cross_entropy(), data, Arrays(torch.zeros(3)))


def test_what_is_held_out_and_what_is_kept_make_up_the_training_set() -> None:
    """Each sample once, and the same ones each time."""
    whole = task(Arrays(torch.arange(20.0), torch.arange(20)))

    first, second = hold_out(whole, 5), hold_out(whole, 5)

    kept, held = first.train_data.columns[1], first.eval_data.columns[1]
    assert sorted([*kept.tolist(), *held.tolist()]) == list(range(20))
    assert (len(kept), len(held)) == (15, 5)
    assert torch.equal(second.eval_data.columns[1], held)
    assert "5 training samples held out" in first.data_source


def test_a_dataset_keeps_its_collate() -> None:
    """Samples of a subset are put together as those of the whole set."""
    split = hold_out(task(Rows()), 4)

    assert sorted([*split.train_data.indices, *split.eval_data.indices]) == list(range(20))
    assert split.eval_data.collate([split.eval_data[0]]).item() >= 100


def test_held_out_samples_are_not_augmented() -> None:
    """Without draws the preparation leaves them as they are."""
    seen = []

    def prepare(columns, draws, like):
        seen.append(draws)
        return columns

    split = hold_out(task(Arrays(np.zeros((4, 1)), prepare=prepare)), 2)

    split.eval_data.batch(torch.arange(2), None, LIKE)

    assert seen == [None]


def test_nothing_is_held_out_by_default_and_never_everything() -> None:
    """Zero changes nothing; all of it is refused."""
    whole = task(Arrays(torch.zeros(4)))

    assert hold_out(whole, 0) is whole
    with pytest.raises(PacelineError, match="--holdout 4 leaves nothing to train on"):
        hold_out(whole, 4)
