"""Throw-away steps leave no trace, and after them every step adds up in the same order."""

from __future__ import annotations

import pytest

from paceline.pool.warm_ranks import run_ranks
from tests.train import ranks


@pytest.mark.parametrize("inspected_only", [False, True])
@pytest.mark.parametrize("world", [1, 2])
def test_nothing_is_left_of_the_throw_away_steps(world: int, inspected_only: bool) -> None:
    """Weights, batch-norm statistics, gradients, mode and three random generators, to the bit."""
    results = run_ranks(ranks.settled, world, inspected_only)

    assert results == [{"same": True, "ran": True}] * world


def test_after_settling_the_same_batch_gives_the_same_bits_at_every_step() -> None:
    """With three ranks and several buckets; without settling the first step rounds differently from the second."""
    settled = run_ranks(ranks.gradients_of_steps, 3, True, 4)
    unsettled = run_ranks(ranks.gradients_of_steps, 3, False, 4)

    for bits in settled:
        assert len(set(bits)) == 1
    assert settled[0] == settled[1] == settled[2]
    assert unsettled[0][0] != unsettled[0][1]
    assert unsettled[0][1:] == settled[0][1:]


def test_parameters_that_the_loss_does_not_reach_on_some_rank_are_named_on_all() -> None:
    """DDP would wait for them for ever; frozen ones do not count."""
    results = run_ranks(ranks.unreached, 3, [[1, 2], [1], [1, 2]])

    assert results == [["layers.2.bias", "layers.2.weight"]] * 3
    assert run_ranks(ranks.unreached, 2, [[1, 2], [2, 1]]) == [[], []]


@pytest.mark.parametrize("norm", ["local", "sync"])
def test_a_loss_that_is_wrong_on_one_rank_is_refused_on_all_in_the_same_words(norm: str) -> None:
    """Before any rank waits for a message of the other: one at the end, and those of a synchronised norm's backward."""
    first, second = run_ranks(ranks.refused_on_rank_one, 2, norm, timeout_s=30)

    assert first == ("the loss of task t counts 6 where the batch has 5 samples", "rank 1 says so", 2)
    assert second == ("the loss of task t counts 6 where the batch has 5 samples", "", 2)


def test_what_a_forward_changes_beside_buffers_is_put_back_and_named() -> None:
    """A count in a plain attribute, a tensor that is no buffer, a layer that is unfrozen; and that it draws."""
    (result,) = run_ranks(ranks.changed, 1)

    assert result == {"calls": 0, "seen": [0.0], "frozen": True, "unsaved": ["calls", "seen"], "draws": True}
