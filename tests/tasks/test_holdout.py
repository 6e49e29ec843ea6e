"""Held-out samples: fixed, disjoint, and never trained on. Smaller parts: nested, by seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paceline.landscape.config import LandscapeConfig
from paceline.landscape.target import task_settings
from paceline.records.errors import PacelineError
from paceline.records.rundir import RunDir, write_info
from paceline.records.schema import RunInfo
from paceline.tasks.classify import cross_entropy
from paceline.tasks.data.arrays import Arrays, Like
from paceline.tasks.holdout import hold_out, narrow, take
from paceline.tasks.table import Part
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


def chosen(part: Part, samples: int = 40) -> list[int]:
    """Which of `samples` samples a run with that part trains on."""
    whole = task(Arrays(torch.arange(float(samples)), torch.arange(samples)))
    return narrow(whole, part).train_data.columns[1].tolist()


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 2**40))
def test_samples_of_a_smaller_part_are_among_those_of_a_larger_one(one: int, other: int, seed: int) -> None:
    """For any two sizes and any seed; each has as many as were asked for, and none twice."""
    small, large = sorted((one, other))

    less, more = chosen(Part(samples=small, seed=seed)), chosen(Part(samples=large, seed=seed))

    assert set(less) <= set(more)
    assert (len(set(less)), len(set(more))) == (small, large)


def test_which_samples_depends_on_the_seed_and_on_nothing_else() -> None:
    """The same after other random numbers were drawn; others with another seed, all of them now and then."""
    first = chosen(Part(samples=20, seed=7))
    torch.manual_seed(1)
    np.random.seed(2)

    again, other = chosen(Part(samples=20, seed=7)), chosen(Part(samples=20, seed=8))

    assert again == first
    assert other != first
    assert set().union(*(chosen(Part(samples=20, seed=seed)) for seed in range(20))) == set(range(40))


def test_a_part_is_taken_of_what_the_holdout_leaves() -> None:
    """What is evaluated on stays the same for all sizes and seeds, and nobody trains on it."""
    whole = task(Arrays(torch.arange(20.0), torch.arange(20)))

    parts = [narrow(whole, Part(5, samples, seed)) for samples in (3, 15, None) for seed in (0, 1)]

    held = [part.eval_data.columns[1].tolist() for part in parts]
    assert all(each == held[0] for each in held)
    assert all(set(held[0]).isdisjoint(part.train_data.columns[1].tolist()) for part in parts)
    assert [len(part.train_data) for part in parts] == [3, 3, 15, 15, 15, 15]
    assert "3 of 15 training samples, by seed 1" in parts[1].data_source


def test_a_part_of_a_dataset_keeps_its_collate() -> None:
    """And has the same samples as arrays would have."""
    part = take(task(Rows()), 6, seed=3)

    assert part.train_data.indices == chosen(Part(samples=6, seed=3), samples=20)
    assert part.train_data.collate([part.train_data[0]]).item() >= 100


def test_a_part_of_arrays_holds_its_own_rows_only() -> None:
    """The rest of the memory can go."""
    whole = task(Arrays(torch.zeros(1000, 10)))

    part = take(whole, 10, seed=0)

    column = part.train_data.columns[0]
    assert column.untyped_storage().nbytes() == 10 * 10 * 4
    assert part.eval_data is whole.eval_data


def test_all_samples_are_the_task_itself_and_more_are_refused() -> None:
    """To the object; with the legal range."""
    whole = task(Arrays(torch.zeros(4)))

    assert take(whole, None, seed=0) is whole
    assert take(whole, 4, seed=0) is whole
    for samples in (0, 5):
        with pytest.raises(PacelineError, match=f"--train-samples {samples} is out of range") as refused:
            take(whole, samples, seed=0)
        assert "1 <= value <= 4" in refused.value.hint


def test_a_landscape_of_a_run_has_the_samples_that_it_was_trained_on(tmp_path: Path) -> None:
    """Holdout, number and seed are read from its run.json; a run without them had all."""
    config = {"task": "digits", "holdout": 100, "train_samples": 50, "seed": 9}
    for name, stored in (("part", config), ("whole", {"task": "digits"})):
        info = RunInfo(schema=1, verb="train", name="digits", command=[], started_at="", versions={}, config=stored)
        write_info(RunDir(tmp_path / name), info)

    part = task_settings(LandscapeConfig(target=str(tmp_path / "part")))[2]
    whole = task_settings(LandscapeConfig(target=str(tmp_path / "whole")))[2]

    assert part == Part(100, 50, 9)
    assert whole == Part(0, None, 0)
