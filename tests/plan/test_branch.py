"""Branches: on a problem that is known exactly, the largest batch that loses nothing is picked; all take as much."""

from __future__ import annotations

import math

import pytest

from paceline.plan.branch import LEAST_STEPS, SHARE, TOLERANCE, lay_out, settle
from paceline.records.errors import Exit, PacelineError


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
    assert settle({64: [1.0, 1.0], 128: [0.9, math.inf]}).largest == 64


def test_a_seed_that_diverged_at_the_smallest_batch_hides_no_loss() -> None:
    """It is left out there; five times the loss is then still a loss, and no loss is none."""
    lost = settle({64: [1.0, math.nan], 128: [5.0, 5.0]})
    kept = settle({64: [math.nan, 1.0], 128: [1.0, 1.0]})

    assert (lost.largest, lost.bounded, lost.limit) == (64, True, pytest.approx(1.01))
    assert (kept.largest, kept.bounded) == (128, False)


def test_without_a_loss_at_the_smallest_batch_nothing_is_settled() -> None:
    """There is nothing to compare the others with: exit code 3, as for a training that diverged."""
    with pytest.raises(PacelineError, match="every branch at a batch of 64 diverged") as refused:
        settle({64: [math.nan, math.nan], 128: [1.0, 1.0]})

    assert refused.value.exit_code == Exit.DIVERGED


def test_a_loss_below_zero_has_a_tolerance_too() -> None:
    """One per cent of its size, upwards."""
    found = settle({64: [-1.0], 128: [-0.995], 256: [-0.98]})

    assert (found.largest, found.limit) == (128, pytest.approx(-0.99))


def test_no_larger_batch_that_fails_leaves_the_end_open() -> None:
    """The largest that was tried is then only a lower bound."""
    found = settle({64: [1.0], 128: [1.0], 256: [0.99]})

    assert (found.largest, found.bounded) == (256, False)


def taken(steps: int, batch: int, data: int) -> int:
    """Samples of so many steps, counted one by one: the last batch of an epoch holds what is left."""
    left = total = 0
    for _ in range(steps):
        left = left or data
        total += min(batch, left)
        left -= min(batch, left)
    return total


@pytest.mark.parametrize(
    ("run_samples", "data", "batches", "seeds"),
    [
        (300_000, 60_000, [128, 256, 512, 1024, 2048], 2),  # less than an epoch each
        (43_110, 1_437, [64, 128, 256], 2),  # an epoch of digits, whose last batches are short
        (1_000_000, 1_437, [64, 128, 256], 3),  # many epochs
        (600_000, 50_000, [96, 128, 200], 1),  # sizes that do not divide each other
    ],
)
def test_all_branches_take_the_same_samples_and_a_fifth_of_the_run(
    run_samples: int, data: int, batches: list[int], seeds: int
) -> None:
    """Counted step by step; the largest has ten steps or more; all together stay within the share."""
    found = lay_out(run_samples, data, batches, seeds)

    assert {each: taken(steps, each, data) for each, steps in found.steps.items()} == found.samples
    assert len(set(found.samples.values())) == 1
    assert seeds * sum(found.samples.values()) <= SHARE * run_samples
    assert found.steps[max(found.steps)] >= LEAST_STEPS
    assert sorted([*found.steps, *found.left_out]) == batches


def test_sizes_that_have_no_common_multiple_in_the_run_differ_by_less_than_a_batch() -> None:
    """And the samples that each takes are what is said."""
    found = lay_out(45_000, 50_000, [96, 128, 200], 1)

    assert found.samples == {each: each * steps for each, steps in found.steps.items()}
    assert all(found.samples[200] - found.samples[each] < each for each in (96, 128))
    assert sum(found.samples.values()) <= SHARE * 45_000


def test_the_largest_batches_are_left_out_of_a_short_run() -> None:
    """60,000 samples for ten branches are 6,000 each, less than ten steps at 1,024; for six they are 19 at 512."""
    found = lay_out(300_000, 60_000, [128, 256, 512, 1024, 2048], 2)

    assert found.left_out == (1024, 2048)
    assert dict(found.steps) == {128: 76, 256: 38, 512: 19}


def test_a_run_too_short_for_two_batches_is_refused() -> None:
    """With what it would take."""
    with pytest.raises(PacelineError, match="too short for branches") as refused:
        lay_out(5_000, 60_000, [64, 128], 1)

    assert "10 steps" in refused.value.why
