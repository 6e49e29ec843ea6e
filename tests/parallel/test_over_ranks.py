"""Sums, rows, buffers and decisions over real gloo ranks, against numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from paceline.pool.warm_ranks import run_ranks
from tests.parallel import ranks

WORLDS = [1, 2, 3]


@pytest.mark.parametrize("world", WORLDS)
def test_a_sum_is_the_same_on_every_rank_and_exact_for_counts(world: int) -> None:
    """Counts above 2^24, which float32 could not hold, in place."""
    values = [[2.0**40 + rank, 0.5, -rank] for rank in range(world)]

    results = run_ranks(ranks.summed, world, values)

    assert results == [np.sum(values, axis=0).tolist()] * world


@pytest.mark.parametrize("dtype", ["float32", "int64", "bfloat16"])
@pytest.mark.parametrize("world", WORLDS)
def test_rows_come_in_the_order_of_the_data_from_uneven_and_empty_parts(world: int, dtype: str) -> None:
    """Totals below, at and above the number of ranks, none at all included."""
    totals = [7, 3, 2, 1, 0, 64]

    results = run_ranks(ranks.gathered, world, totals, dtype)

    for rows in results:
        for total, found in zip(totals, rows, strict=True):
            assert found.dtype == getattr(torch, dtype)
            assert found.tolist() == [[i, -i] for i in range(total)]


def test_objects_reach_rank_zero_in_rank_order() -> None:
    """And nobody else."""
    assert run_ranks(ranks.objects, 3) == [[{"rank": 0}, {"rank": 1}, {"rank": 2}], None, None]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("world", WORLDS)
def test_buffers_of_real_numbers_become_their_mean_over_ranks_and_others_rank_zeros(world: int, dtype: str) -> None:
    """numpy takes the mean, of any layer's; counters and flags are rank 0's; all ranks hold the same bits."""
    results = run_ranks(ranks.merged, world, dtype)

    assert all(result["equal"] for result in results)
    after = results[0]["after"]
    assert {n for n in after if n.endswith("num_batches_tracked")}
    for name, value in after.items():
        before = np.stack([result["before"][name] for result in results])
        if value.dtype == np.dtype(dtype):
            np.testing.assert_allclose(value, before.mean(axis=0), rtol=1e-6 if dtype == "float32" else 1e-14)
        else:
            np.testing.assert_array_equal(value, before[0])
        assert value.dtype == before.dtype


def test_buffers_that_are_equal_on_all_ranks_stay_as_they_are_to_the_bit() -> None:
    """Masks of inf and NaN, and numbers whose sum rounds; layers that differ are named, torch's norms are not."""
    for result in run_ranks(ranks.merged_masks, 3):
        assert result["same"] == {"mask", "tenth", "index", "wave"}
        assert result["averaged"] == ("highest",)
        assert result["replaced"] == ("counter",)
        assert result["highest"] == [2.0, math.inf]


def test_a_buffer_with_another_shape_on_each_rank_is_named() -> None:
    """Instead of a message of the wrong length."""
    assert run_ranks(ranks.merged_queue, 2) == ["the buffer queue has another shape on each worker"] * 2


@pytest.mark.parametrize("world", WORLDS)
def test_ranks_are_bit_equal_only_when_every_bit_is(world: int) -> None:
    """One last bit or one sign of zero on one rank is a difference; the same NaN is none."""
    several = world > 1

    results = run_ranks(ranks.bit_equal, world)

    assert results == [{"same": True, "last bit": not several, "sign of zero": not several, "nan": True}] * world


@pytest.mark.parametrize("world", WORLDS)
def test_what_rank_zero_makes_everybody_has(world: int) -> None:
    """Made once, on rank 0."""
    assert run_ranks(ranks.decided, world, False) == [{"made by": 0}] * world


@pytest.mark.parametrize("world", WORLDS)
def test_what_rank_zero_cannot_make_fails_everywhere_with_one_message(world: int) -> None:
    """All parts and the exit code travel, and no rank waits."""
    results = run_ranks(ranks.decided, world, True, timeout_s=30)

    assert results == [("no disk", "it is gone", "buy one", 4)] * world


@pytest.mark.parametrize("world", WORLDS)
def test_when_all_can_each_has_its_own(world: int) -> None:
    """`all_or_none` returns what this rank made."""
    assert run_ranks(ranks.built, world, []) == [rank * 10 for rank in range(world)]


def test_when_one_cannot_everybody_hears_why_and_from_whom() -> None:
    """The failure of the lowest rank that failed, also on ranks that could, and no rank waits."""
    first, second, third = run_ranks(ranks.built, 3, [1], timeout_s=30)
    both = run_ranks(ranks.built, 3, [2, 0], timeout_s=30)

    assert second == ("1 cannot", "broken", "", 4)
    assert first == third == ("1 cannot", "broken (on rank 1)", "", 4)
    assert [result[0] for result in both] == ["0 cannot"] * 3
    assert both[1][1] == "rank 0 says so"


def test_ranks_with_other_settings_are_refused_and_both_are_shown() -> None:
    """The first that differs from rank 0 is named, on every rank alike."""
    equal = run_ranks(ranks.required, 2, ["red", "red"])
    odd = run_ranks(ranks.required, 3, ["red", "red", "blue"], timeout_s=30)

    assert equal == ["equal"] * 2
    what = "rank 2 was started with another colour than rank 0"
    assert odd == [(what, "rank 0: red; rank 2: blue", "give every machine the same command", 2)] * 3
