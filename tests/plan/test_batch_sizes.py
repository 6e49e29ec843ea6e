"""At which batch sizes trainings are made: never at one that the training set does not hold four times."""

from __future__ import annotations

import pytest

from paceline.plan.batch_sizes import sizes_of_branches, sizes_of_sweep
from paceline.records.errors import PacelineError


@pytest.mark.parametrize(
    ("base", "samples", "sizes"),
    [
        (128, 60_000, [128, 512, 2048, 8192]),
        (128, 30_000, [128, 512, 2048]),
        (64, 1_437, [16, 64, 256]),  # digits: 1,024 would be two thirds of an epoch
        (64, 256, [4, 16, 64]),
        (64, 200, [1, 4, 16]),
    ],
)
def test_a_sweep_is_as_wide_as_the_training_set_allows(base: int, samples: int, sizes: list[int]) -> None:
    """1, 4, 16 and 64 times the task's batch up to a quarter of the samples; three at least, then smaller ones."""
    assert sizes_of_sweep(base, samples) == sizes
    assert max(sizes) <= samples // 4


@pytest.mark.parametrize(
    ("base", "samples", "sizes"),
    [(128, 60_000, [128, 256, 512, 1024, 2048]), (64, 1_437, [64, 128, 256]), (64, 512, [64, 128])],
)
def test_branches_go_up_from_the_runs_own_batch(base: int, samples: int, sizes: list[int]) -> None:
    """1 to 16 times, up to a quarter of the samples."""
    assert sizes_of_branches(base, samples) == sizes


def test_sizes_that_were_asked_for_are_taken_as_they_are() -> None:
    """Branches have the run's own besides."""
    assert sizes_of_sweep(64, 1_437, [32, 100, 359]) == [32, 100, 359]
    assert sizes_of_branches(64, 1_437, [32, 128]) == [32, 64, 128]


@pytest.mark.parametrize("sizes", [sizes_of_sweep, sizes_of_branches])
def test_a_batch_of_more_than_a_quarter_of_the_samples_is_refused(sizes) -> None:
    """It would be the whole set, or nearly so, under another name."""
    with pytest.raises(PacelineError, match="a batch of 360 is more than one in 4 of the 1,437") as refused:
        sizes(64, 1_437, [32, 64, 360])

    assert refused.value.hint == "--batches up to 359"


def test_where_no_sizes_fit_it_is_said() -> None:
    """Too few samples for three; a run of whose batch nothing larger fits; a list that holds only its own."""
    with pytest.raises(PacelineError, match="too few for 3 batch sizes"):
        sizes_of_sweep(64, 40)
    with pytest.raises(PacelineError, match="leaves no room"):
        sizes_of_branches(512, 1_437)
    with pytest.raises(PacelineError, match="no other batch"):
        sizes_of_branches(256, 1_437)
    with pytest.raises(PacelineError, match="no other batch"):
        sizes_of_branches(64, 1_437, [64])
