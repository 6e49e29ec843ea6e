"""Which sample goes where: laws that hold for any numbers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.parallel.partition import (
    batch_span,
    draws_seed,
    epoch_order,
    largest_micro_batch,
    rank_spans,
    split,
    steps_per_epoch,
)

SAMPLES = st.integers(1, 300)
BATCH = st.integers(1, 80)
WORLD = st.integers(1, 9)
ACCUMULATION = st.integers(1, 5)
SEED = st.integers(0, 2**63 - 1)


@given(total=st.integers(0, 10_000), parts=st.integers(1, 50))
def test_a_split_covers_everything_once_in_pieces_that_differ_by_at_most_one(total: int, parts: int) -> None:
    """Pieces touch, in order; numpy's array_split is the reference."""
    spans = [split(total, parts, part) for part in range(parts)]

    reference = [len(piece) for piece in np.array_split(np.arange(total), parts)]
    assert [len(span) for span in spans] == reference
    assert spans[0].start == 0
    assert spans[-1].stop == total
    assert all(left.stop == right.start for left, right in itertools.pairwise(spans))
    assert max(reference) - min(reference) <= 1


@pytest.mark.parametrize(("total", "parts", "part"), [(5, 0, 0), (5, 2, 2), (5, 2, -1), (-1, 2, 0)])
def test_a_part_that_does_not_exist_is_refused(total: int, parts: int, part: int) -> None:
    """No silent empty slice."""
    with pytest.raises(ValueError, match=f"part {part} of {parts} of {total}"):
        split(total, parts, part)


def epoch_of(samples: int, batch: int, world: int, accumulation: int, seed: int, epoch: int) -> list[list[list[int]]]:
    """Samples by batch and by (rank, micro-batch)."""
    order = epoch_order(samples, seed, epoch)
    return [
        [
            order[span.start : span.stop].tolist()
            for micro in range(accumulation)
            for rank in range(world)
            for span in [rank_spans(batch_span(samples, batch, index), world, rank, accumulation)[micro]]
        ]
        for index in range(steps_per_epoch(samples, batch))
    ]


@given(samples=SAMPLES, batch=BATCH, world=WORLD, accumulation=ACCUMULATION, seed=SEED, epoch=st.integers(0, 5))
def test_every_sample_is_used_exactly_once_an_epoch(samples, batch, world, accumulation, seed, epoch) -> None:
    """Over ranks, micro-batches and batches, for any numbers, the uneven last batch included."""
    batches = epoch_of(samples, batch, world, accumulation, seed, epoch)

    used = [sample for pieces in batches for piece in pieces for sample in piece]
    assert sorted(used) == list(range(samples))


@given(samples=SAMPLES, batch=BATCH, world=WORLD, accumulation=ACCUMULATION, seed=SEED)
def test_a_global_batch_does_not_depend_on_how_many_share_it(samples, batch, world, accumulation, seed) -> None:
    """Its samples, and their order, are those of one process."""
    shared = epoch_of(samples, batch, world, accumulation, seed, 1)
    alone = epoch_of(samples, batch, 1, 1, seed, 1)

    assert [list(itertools.chain(*pieces)) for pieces in shared] == [pieces[0] for pieces in alone]
    assert [len(pieces[0]) for pieces in alone[:-1]] == [batch] * (len(alone) - 1)


@given(batch=BATCH, world=WORLD, accumulation=ACCUMULATION)
def test_a_micro_batch_does_not_depend_on_how_many_share_it(batch: int, world: int, accumulation: int) -> None:
    """All ranks' parts of it together are one process's: what is computed over it (batch norm) is the same."""
    whole = batch_span(batch, batch, 0)
    alone = rank_spans(whole, 1, 0, accumulation)

    parts = [rank_spans(whole, world, rank, accumulation) for rank in range(world)]

    for micro, span in enumerate(alone):
        together = [position for part in parts for position in range(part[micro].start, part[micro].stop)]
        assert together == list(range(span.start, span.stop))


@given(batch=BATCH, world=WORLD, accumulation=ACCUMULATION)
def test_the_largest_micro_batch_is_the_largest_there_is(batch: int, world: int, accumulation: int) -> None:
    """The number that the first line shows is what a rank has to hold."""
    sizes = [
        len(span)
        for rank in range(world)
        for span in rank_spans(batch_span(batch, batch, 0), world, rank, accumulation)
    ]

    assert max(sizes) == largest_micro_batch(batch, world, accumulation)


@given(samples=st.integers(10, 200), seed=SEED, epoch=st.integers(0, 100))
def test_the_order_is_a_permutation_that_seed_and_epoch_decide(samples: int, seed: int, epoch: int) -> None:
    """The same again for the same two, another for another epoch or another seed; numpy's global state is not used."""
    np.random.seed(1)
    first = epoch_order(samples, seed, epoch)
    np.random.seed(2)
    again = epoch_order(samples, seed, epoch)

    assert sorted(first.tolist()) == list(range(samples))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, epoch_order(samples, seed, epoch + 1))
    assert not np.array_equal(first, epoch_order(samples, (seed + 1) % 2**63, epoch))


def test_the_order_of_a_seed_never_changes() -> None:
    """Resumed and repeated runs of later versions depend on these very numbers."""
    assert epoch_order(8, seed=0, epoch=0).tolist() == [3, 6, 4, 0, 7, 5, 2, 1]
    assert draws_seed(0, 0, 0) == 2_918_264_622_725_855_778


def test_orders_are_uniform() -> None:
    """Over 3,000 epochs of four samples each of the 24 orders comes about 125 times (5 sigma: 70 to 180)."""
    counts: dict[tuple[int, ...], int] = {}
    for epoch in range(3000):
        order = tuple(epoch_order(4, 5, epoch).tolist())
        counts[order] = counts.get(order, 0) + 1

    assert len(counts) == 24
    assert all(70 < count < 180 for count in counts.values())


def test_a_batch_that_does_not_exist_is_refused() -> None:
    """Before the first and after the last."""
    assert steps_per_epoch(10, 4) == 3
    for index in (-1, 3):
        with pytest.raises(ValueError, match="does not exist"):
            batch_span(10, 4, index)


@given(seed=SEED, epoch=st.integers(0, 1000), batch=st.integers(0, 10**6))
def test_a_seed_of_draws_fits_every_generator(seed: int, epoch: int, batch: int) -> None:
    """63 bits, and the same for the same batch."""
    drawn = draws_seed(seed, epoch, batch)

    assert 0 <= drawn < 2**63
    assert drawn == draws_seed(seed, epoch, batch)


def test_seeds_of_draws_are_distinct_and_apart_from_the_order() -> None:
    """No two batches of 20 epochs and 3 seeds share one."""
    seeds = {draws_seed(seed, epoch, batch) for seed in range(3) for epoch in range(20) for batch in range(50)}

    assert len(seeds) == 3 * 20 * 50
