"""The one noise scale of a run: the same steps as its stretches, its interval, and why the end differs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paceline.plan.run_noise import over_run, record
from paceline.plan.steps import steps_of_run
from paceline.stats import goodput
from paceline.stats.noise_scale import NoiseScale, Window, noise_scale


def window(first: int, last: int, value: float, low: float, high: float) -> Window:
    """A stretch with that noise scale and interval."""
    return Window(first, last, NoiseScale(value, low, high, 1.0, 1.0, 100, 0.9))


GROWING = [window(1, 300, 50.0, 40, 65), window(301, 900, 400.0, 300, 560), window(901, 1000, 5e3, 3e3, math.inf)]


@pytest.mark.parametrize("batch", [16, 64, 100, 512, 1 << 20])
def test_one_noise_scale_takes_the_steps_that_the_stretches_take(batch: float) -> None:
    """At every batch: each stretch shortened by its own gain, added up, is the run shortened by one gain."""
    shares = [300 / goodput.gain(50, 64, batch), 600 / goodput.gain(400, 64, batch), 100 / goodput.gain(5e3, 64, batch)]

    found = over_run(GROWING, 64)

    assert 1000 / goodput.gain(found.value, 64, batch) == pytest.approx(sum(shares))
    assert steps_of_run(GROWING, 64, 1000).at(batch).value == pytest.approx(sum(shares))


def test_a_run_of_one_stretch_has_its_noise_scale_and_interval() -> None:
    """Nothing is added up."""
    found = over_run([window(1, 100, 300.0, 200, 500)], 64)

    assert (found.value, found.low, found.high) == pytest.approx((300, 200, 500))


def test_an_infinite_stretch_leaves_the_run_finite_and_only_infinite_ones_do_not() -> None:
    """Half of the steps at 64 and half without signal: p = 3/4, three times the base."""
    lost = window(101, 200, math.inf, 100, math.inf)

    assert over_run([window(1, 100, 64.0, 64, 64), lost], 64).value == pytest.approx(192)
    assert math.isinf(over_run([lost], 64).value)


def test_nine_of_ten_intervals_hold_the_noise_scale_of_the_run() -> None:
    """Of 300 runs whose noise scale grows from 30 to 1,000 in ten stretches of 100 steps, with the scatter of single
    steps that groups of a batch of 64 have."""
    generator = np.random.default_rng(0)
    truths = np.geomspace(30, 1000, 10)
    share = np.mean(truths / (truths + 64))
    truth, inside = 64 * share / (1 - share), []

    for _ in range(300):
        windows = []
        for number, scale in enumerate(truths):
            noise = 1.0 * generator.gamma(4, 1 / 4, size=100)
            signal = 1 / scale + (1 / 64) * generator.normal(0, 0.5, size=100)
            windows.append(Window(100 * number + 1, 100 * number + 100, noise_scale(noise, signal)))
        found = over_run(windows, 64)
        inside.append(found.low <= truth <= found.high)

    assert 0.85 <= np.mean(inside) <= 0.97


def test_the_reason_is_given_where_the_end_is_another() -> None:
    """Steps and both numbers are named; where the stretches agree, nothing is explained."""
    grown = record(GROWING, 64, used=True)
    even = record([window(1, 100, 50.0, 40, 65), window(101, 200, 55.0, 41, 70)], 64, used=True)

    assert grown is not None
    assert even is not None
    assert (grown.first, grown.last) == (1, 1000)
    assert "grew from 50 [40, 65] over steps 1 to 300 to 5,000 [3,000, no upper end]" in grown.why
    assert even.why == ""
    assert record([], 64, used=True) is None
