"""Steps to a target at any batch: from runs, or between two bounds from one run's noise."""

from __future__ import annotations

import math

import pytest

from paceline.plan.steps import Branched, Steps, at_most_data, steps_of_run, until, usable
from paceline.records.errors import PacelineError
from paceline.records.plan_results import BatchPoint
from paceline.stats.hyperbola import fit
from paceline.stats.intervals import Interval
from paceline.stats.noise_scale import NoiseScale, Window


def reached(batch: int, steps: float | None, seed: int = 0) -> BatchPoint:
    """A run."""
    samples = None if steps is None else steps * batch
    return BatchPoint(run="r", batch=batch, seed=seed, steps=steps, samples=samples)


def window(first: int, last: int, value: float, samples: int | None = None) -> Window:
    """A stretch with that noise scale."""
    return Window(first, last, NoiseScale(value, value / 2, value * 2, 1.0, 1.0, 100, 0.9, samples))


def exactly(value: float) -> Interval:
    """A number that is known."""
    return Interval(value, value, value)


def test_runs_that_missed_the_target_take_their_batch_size_with_them() -> None:
    """The other seeds of that size would make it look better than it is."""
    runs = [reached(32, 900), reached(128, 300), reached(512, 150, 0), reached(512, None, 1), reached(2048, 120)]

    found = usable(runs, 3)

    assert [one.batch for one in found] == [32, 128, 2048]
    with pytest.raises(PacelineError, match="3 batch sizes met the target with every seed, and 4") as refused:
        usable(runs, 4)
    assert "512" in str(refused.value.why)


def test_a_hyperbola_gives_steps_with_their_interval() -> None:
    """At a batch that was not run; the efficiency of a sample falls beyond the critical batch."""
    sizes = [32, 128, 512, 2048]
    steps = Steps(32, hyperbola=fit(sizes, [100 + 25_600 / size for size in sizes]))

    found = steps.at(256)

    assert found.value == pytest.approx(200, rel=1e-6)
    assert found.low <= found.value <= found.high
    assert steps.efficiency(32).value == pytest.approx(1)
    assert steps.efficiency(256).value == pytest.approx((100 + 25_600 / 32) * 32 / (200 * 256))


def test_the_noise_of_one_run_gives_a_guess_between_linear_scaling_and_none() -> None:
    """A quarter of the run with a noise scale of 64, the rest with an infinite one, at eight times the batch of 64."""
    steps = steps_of_run([window(1, 250, 64.0), window(251, 1000, math.inf)], 64, 1000)

    found = steps.at(512)

    assert found.value == pytest.approx(250 * (64 / 512 + 1) / 2 + 750 / 8)
    assert (found.low, found.high) == (125, 1000)
    assert steps.efficiency(64).value == pytest.approx(1)


def test_noise_beyond_the_data_set_counts_as_the_data_set() -> None:
    """There is no more to it than that many samples."""
    (found,) = at_most_data([window(1, 10, 1e9, samples=50_000)])

    assert found.found.value == 50_000


def test_a_run_without_noise_is_refused() -> None:
    """And how to record it is said."""
    with pytest.raises(PacelineError, match="no noise") as refused:
        steps_of_run([], 64, 1000)

    assert "--accumulate 2" in str(refused.value.hint)


def test_where_branches_lost_nothing_steps_fall_in_proportion() -> None:
    """A noise scale of 100 says 27 % of a batch of 512; branches that lost nothing up to it say all, and beyond it the
    noise is looked at from there."""
    windows = [window(1, 1000, 100.0)]
    alone, settled = steps_of_run(windows, 64, 1000), steps_of_run(windows, 64, 1000, Branched(512, exactly(40.0)))

    found = settled.at(512)

    assert alone.efficiency(512).value == pytest.approx(164 / 612)
    assert settled.efficiency(512).value == settled.efficiency(128).value == pytest.approx(1)
    assert found.value == found.low == 125
    assert found.high == pytest.approx(alone.at(512).value)
    assert settled.efficiency(2048).value == pytest.approx((100 + 512) / (100 + 2048))
    assert (settled.at(2048).low, settled.at(2048).high) == (31.25, 1000)


def test_rates_follow_the_noise_that_the_branches_were_trained_by() -> None:
    """At their checkpoint; without branches what the whole run says of a step's progress."""
    windows = [window(1, 500, 64.0), window(501, 1000, 640.0)]

    alone, settled = steps_of_run(windows, 64, 1000), steps_of_run(windows, 64, 1000, Branched(512, exactly(640.0)))

    assert settled.gain(512).value == pytest.approx((640 / 64 + 1) / (640 / 512 + 1))
    assert alone.gain(512).value == pytest.approx(1000 / alone.at(512).value)


def test_noise_after_the_target_was_met_does_not_count() -> None:
    """The stretch in which it was met ends there; one that was met before all noise leaves the first stretch."""
    windows = [window(10, 100, 1.0), window(101, 200, 2.0), window(201, 300, 3.0)]

    found = until(windows, 149.5)

    assert [(one.first, one.last, one.found.value) for one in found] == [(10, 100, 1.0), (101, 150, 2.0)]
    assert [(one.first, one.last) for one in until(windows, 5.0)] == [(10, 100)]
