"""Data in memory: columns, rows, and draws that do not depend on who draws them."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paceline.tasks.data.arrays import Arrays, Draws, Like

LIKE = Like(torch.device("cpu"), torch.float32, channels_last=False)


@given(seed=st.integers(0, 2**63 - 1), total=st.integers(0, 40), data=st.data())
def test_a_ranks_draws_are_its_part_of_the_whole_batchs(seed: int, total: int, data: st.DataObject) -> None:
    """So a sample is augmented alike whoever has it: for any cut, any order of kinds of numbers."""
    start = data.draw(st.integers(0, total))
    stop = data.draw(st.integers(start, total))
    kinds = data.draw(st.lists(st.sampled_from(["uniform", 2, 5, 1000]), max_size=6))

    whole, part = Draws(lambda: seed, total, 0, total), Draws(lambda: seed, total, start, stop)

    for kind in kinds:
        all_numbers = whole.uniform() if kind == "uniform" else whole.integers(kind)
        own = part.uniform() if kind == "uniform" else part.integers(kind)
        assert torch.equal(own, all_numbers[start:stop])


def test_draws_leave_the_global_generator_alone_and_differ_by_seed() -> None:
    """A batch has a generator of its own."""
    before = torch.get_rng_state()

    numbers = [Draws(partial(int, seed), 50, 0, 50).uniform() for seed in (1, 1, 2)]

    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(numbers[0], numbers[1])
    assert not torch.equal(numbers[0], numbers[2])


@given(seed=st.integers(0, 2**63 - 1), high=st.integers(1, 9))
def test_draws_stay_in_their_range(seed: int, high: int) -> None:
    """[0, 1) and whole numbers of [0, high)."""
    draws = Draws(lambda: seed, 200, 0, 200)

    uniform, whole = draws.uniform(), draws.integers(high)

    assert bool(((uniform >= 0) & (uniform < 1)).all())
    assert set(whole.tolist()) <= set(range(high))


def test_a_batch_is_the_rows_that_were_asked_for_in_that_order() -> None:
    """numpy's fancy indexing is the reference; doubles, repeats and several columns; numbers in the like's type."""
    x, y = np.random.default_rng(0).normal(size=(10, 3, 2)), np.arange(10)
    indices = [7, 0, 7, 3]

    batch = Arrays(x, y).batch(torch.tensor(indices), None, LIKE)

    assert [column.dtype for column in batch] == [torch.float32, torch.int64]
    np.testing.assert_array_equal(batch[0].numpy(), x[indices].astype(np.float32))
    np.testing.assert_array_equal(batch[1].numpy(), y[indices])


def test_prepare_gets_the_rows_the_draws_and_the_like() -> None:
    """It alone decides what a batch is."""
    seen = []
    draws = Draws(lambda: 1, 5, 0, 2)
    arrays = Arrays(np.arange(5), prepare=lambda *given: seen.append(given) or "batch", names=("numbers",))

    batch = arrays.batch(torch.tensor([4, 1]), draws, LIKE)

    assert batch == "batch"
    ((columns, given_draws, like),) = seen
    assert columns[0].tolist() == [4, 1]
    assert given_draws is draws
    assert like is LIKE


def test_columns_of_different_lengths_are_refused_with_both_lengths() -> None:
    """Images and labels that do not belong together."""
    with pytest.raises(ValueError, match=r"different lengths: \[3, 4\]"):
        Arrays(np.zeros(3), torch.zeros(4))


def test_no_column_is_refused() -> None:
    """There would be nothing to train on."""
    with pytest.raises(ValueError, match="at least one column"):
        Arrays()


def test_size_and_length_are_those_of_the_columns() -> None:
    """3 rows of 4 bytes of pixels and 8 of a label."""
    arrays = Arrays(np.zeros((3, 2, 2), np.uint8), torch.zeros(3, dtype=torch.int64))

    assert len(arrays) == 3
    assert arrays.size_bytes == 3 * 4 + 3 * 8


def test_arrays_share_memory_with_what_they_were_made_of() -> None:
    """One copy a machine, also of a mapped file; `to` the same device makes none either."""
    x = np.zeros((4, 2), np.float32)
    arrays = Arrays(x)

    x[2, 1] = 5.0

    assert arrays.columns[0][2, 1] == 5.0
    assert arrays.to(torch.device("cpu")).columns[0].data_ptr() == arrays.columns[0].data_ptr()


def test_a_mapped_file_is_read_where_it_lies(tmp_path) -> None:
    """As a data set that all ranks share."""
    np.save(tmp_path / "x.npy", np.arange(12, dtype=np.uint8).reshape(6, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch warns that a read-only map must not be written
        arrays = Arrays(np.load(tmp_path / "x.npy", mmap_mode="r"))

    (batch,) = arrays.batch(torch.tensor([5, 0]), None, LIKE)

    assert arrays.mapped
    assert not Arrays(np.zeros(2)).mapped
    assert batch.tolist() == [[10, 11], [0, 1]]
    assert batch.dtype == torch.uint8


def test_the_same_data_held_elsewhere_are_prepared_in_the_same_way() -> None:
    """A copy that all ranks of a machine share takes the place of the columns, nothing else changes."""
    arrays = Arrays(np.arange(4), prepare=lambda columns, draws, like: columns[0] * 10, names=("numbers",))
    copy = arrays.columns[0].clone()

    moved = arrays.with_columns([copy])

    assert moved.columns[0].data_ptr() == copy.data_ptr()
    assert moved.names == ("numbers",)
    assert moved.batch(torch.tensor([3, 1]), None, LIKE).tolist() == [30, 10]
