"""Steps to a target at any batch: from runs, or between two bounds from one run's noise."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from paceline.plan.rows import Reached
from paceline.plan.steps import Steps, at_most_data, sort_out, steps_of_run
from paceline.records.errors import PacelineError
from paceline.stats.hyperbola import fit
from paceline.stats.noise_scale import NoiseScale, Window


def reached(batch: int, steps: float | None, seed: int = 0) -> Reached:
    """A run."""
    samples = None if steps is None else steps * batch
    return Reached(Path("r"), batch, seed, steps, samples, 0.1)


def window(first: int, last: int, value: float, samples: int | None = None) -> Window:
    """A stretch with that noise scale."""
    return Window(first, last, NoiseScale(value, value / 2, value * 2, 1.0, 1.0, 100, 0.9, samples))


def test_runs_that_missed_the_target_take_their_batch_size_with_them() -> None:
    """The other seeds of that size would make it look better than it is."""
    runs = [reached(32, 900), reached(128, 300), reached(512, 150, 0), reached(512, None, 1), reached(2048, 120)]

    found = sort_out(runs, 3)

    assert [one.batch for one in found.reached] == [32, 128, 2048]
    assert [one.batch for one in found.censored] == [512]
    with pytest.raises(PacelineError, match="3 batch sizes met the target with every seed, and 4") as refused:
        sort_out(runs, 4)
    assert "512" in str(refused.value.why)


def test_a_hyperbola_gives_steps_with_their_interval() -> None:
    """At a batch that was not run; the efficiency of a sample falls beyond the critical batch."""
    sizes = [32, 128, 512, 2048]
    steps = Steps("hyperbola", 32, hyperbola=fit(sizes, [100 + 25_600 / size for size in sizes]))

    found = steps.at(256)

    assert found.value == pytest.approx(200, rel=1e-6)
    assert found.low <= found.value <= found.high
    assert steps.efficiency(32) == pytest.approx(1)
    assert steps.efficiency(256) == pytest.approx((100 + 25_600 / 32) * 32 / (200 * 256))


def test_the_noise_of_one_run_gives_a_guess_between_linear_scaling_and_none() -> None:
    """A quarter of the run with a noise scale of 64, the rest with an infinite one, at eight times the batch of 64."""
    steps = steps_of_run([window(1, 250, 64.0), window(251, 1000, math.inf)], 64, 1000)

    found = steps.at(512)

    assert found.value == pytest.approx(250 * (64 / 512 + 1) / 2 + 750 / 8)
    assert (found.low, found.high) == (125, 1000)
    assert steps.efficiency(64) == pytest.approx(1)


def test_noise_beyond_the_data_set_counts_as_the_data_set() -> None:
    """There is no more to it than that many samples."""
    (found,) = at_most_data([window(1, 10, 1e9, samples=50_000)])

    assert found.found.value == 50_000


def test_a_run_without_noise_is_refused() -> None:
    """And how to record it is said."""
    with pytest.raises(PacelineError, match="no noise") as refused:
        steps_of_run([], 64, 1000)

    assert "--accumulate 2" in str(refused.value.hint)
