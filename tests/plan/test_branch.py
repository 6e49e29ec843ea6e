"""Branches: on a problem that is known exactly, the largest batch that loses nothing is picked."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paceline.plan.branch import TOLERANCE, samples_of_a_branch, settle


def loss_after(samples: int, batch: int, square: float = 40.0) -> float:
    """E|w|^2 / 2 in ten dimensions with unit noise after SGD over `samples`, each batch at 0.05 of its best rate."""
    for _ in range(samples // batch):
        lr = 0.05 / (1 + 10 / (square * batch))
        square = (1 - lr) ** 2 * square + lr * lr * 10 / batch
    return square / 2


@pytest.mark.parametrize("tolerance", [0.02, 0.1, 0.5])
def test_the_largest_batch_within_the_tolerance_is_picked(tolerance: float) -> None:
    """Against the exact losses of every batch."""
    batches = [1, 2, 4, 8, 16, 32]
    exact = {batch: loss_after(64, batch) for batch in batches}
    wanted = max(
        batch for batch in batches if all(exact[b] <= exact[1] * (1 + tolerance) for b in batches if b <= batch)
    )

    found = settle({batch: [loss] for batch, loss in exact.items()}, tolerance)

    assert found.largest == wanted
    assert found.bounded == (wanted < 32)


def test_what_seeds_scatter_is_no_loss() -> None:
    """Two per cent more is lost where seeds agree, and not where they differ by ten."""
    agreeing = {64: [1.0, 1.001, 0.999], 128: [1.02, 1.021, 1.019]}
    scattered = {64: [1.0, 1.1, 0.9], 128: [1.02, 1.12, 0.92]}

    assert settle(agreeing).largest == 64
    assert settle(scattered).largest == 128
    assert TOLERANCE == 0.01


def test_a_branch_that_diverged_is_a_loss() -> None:
    """However good the others were."""
    assert settle({64: [1.0, 1.0], 128: [0.9, math.nan]}).largest == 64


def test_no_larger_batch_that_fails_leaves_the_end_open() -> None:
    """The largest that was tried is then only a lower bound."""
    found = settle({64: [1.0], 128: [1.0], 256: [0.99]})

    assert (found.largest, found.bounded) == (256, False)


def test_branches_cost_a_fifth_of_the_run() -> None:
    """All together."""
    assert samples_of_a_branch(600_000, 8) == 15_000
    assert np.isclose(8 * samples_of_a_branch(600_000, 8) / 600_000, 0.2)
