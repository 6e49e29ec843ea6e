"""Shuffling that was lost in training, or is left on in an evaluation."""

from __future__ import annotations

from paceline.audits.dp128_shuffle_lost import ShuffleLost
from tests.audits.loader_events import EVALUATE, TRAIN, facts, judged, read, sharded


def passes(rank, world, *, shuffle, seed, training=True, count=2):
    """Passes with a DistributedSampler."""
    given = {"sampler": "DistributedSampler", "sampler_facts": facts(rank, world, shuffle=shuffle)}
    return [
        event
        for number in range(count)
        for event in read(sharded(rank, world, seed), training=training, number=number, step=3 * number, **given)
    ]


def test_training_that_reads_in_order_twice_is_an_info():
    """shuffle=False on the training sampler."""
    (found,) = judged(ShuffleLost, [passes(rank, 3, shuffle=False, seed=None) for rank in range(3)])

    assert (found.severity, found.faults, found.line) == ("info", ["F05"], TRAIN.line)
    assert "does not shuffle" in found.message


def test_an_evaluation_that_shuffles_is_an_info():
    """The sampler's default."""
    (found,) = judged(ShuffleLost, [passes(rank, 2, shuffle=True, seed=0, training=False) for rank in range(2)])

    assert (found.severity, found.line) == ("info", EVALUATE.line)
    assert "random order" in found.message


def test_one_pass_in_order_is_left_alone():
    """A single epoch has no order to repeat."""
    assert judged(ShuffleLost, [passes(rank, 2, shuffle=False, seed=None, count=1) for rank in range(2)]) == []


def test_shuffled_training_and_ordered_evaluation_are_right():
    """As it should be."""
    ranks = [
        [*passes(r, 2, shuffle=True, seed=0), *passes(r, 2, shuffle=False, seed=None, training=False)] for r in range(2)
    ]

    assert judged(ShuffleLost, ranks) == []


def test_a_fixed_permutation_is_left_alone():
    """Nothing is sorted, though the sampler does not shuffle: the list was shuffled before."""
    assert judged(ShuffleLost, [passes(rank, 2, shuffle=False, seed=3) for rank in range(2)]) == []


def test_missing_ranks_give_no_finding():
    """One wrote nothing."""
    assert judged(ShuffleLost, [*(passes(rank, 3, shuffle=False, seed=None) for rank in range(2)), []]) == []
