"""Steps against samples: the critical batch of a case that is known exactly, and refusals on one side of the knee."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paceline.records.errors import PacelineError
from paceline.stats.hyperbola import fit

CRITICAL = 10 * (1 / 2 - 1 / 100) / math.log(100 / 2)
"""Of `steps_of`: s^2 d (1 / m1 - 1 / m0) / ln(m0 / m1) with s = 1, d = 10, from m0 = 100 to m1 = 2: 1.2525."""


def steps_of(batch: float, *, rate: float = 0.01, dimensions: int = 10) -> float:
    """Steps of SGD on |w|^2 / 2 with unit noise, at 0.01 of the best rate for each batch, until E|w|^2 falls to 2.

    The recursion is exact: the mean square m becomes (1 - lr)^2 m + lr^2 d / B. The last step counts by the part of
    it that was needed, in the logarithm.
    """
    square, steps = 100.0, 0
    while True:
        lr = rate / (1 + dimensions / (square * batch))
        after = (1 - lr) ** 2 * square + lr * lr * dimensions / batch
        if after <= 2:
            return steps + math.log(square / 2) / math.log(square / after)
        square, steps = after, steps + 1


def test_the_critical_batch_of_a_noisy_quadratic():
    """1.2525 within 2 %, from batches of 1 to 1,024; steps of all of them within 0.3 %."""
    sizes = [2**k for k in range(11)]

    found = fit(sizes, [steps_of(size) for size in sizes])

    assert found.critical.value == pytest.approx(CRITICAL, rel=0.02)
    assert found.least_steps.value == pytest.approx(195.1, rel=0.005)
    assert found.worst < 0.003
    assert abs(found.held_out) < 0.005
    assert found.critical.low <= found.critical.value <= found.critical.high
    assert found.steps(1.2525).value == pytest.approx(2 * found.least_steps.value, rel=0.02)


def test_units_of_the_batch_do_not_matter():
    """A batch counted in thousandths has a critical batch a thousand times as large."""
    sizes = [2**k for k in range(11)]
    steps = [steps_of(size) for size in sizes]

    found = fit([1_000 * size for size in sizes], steps)

    assert found.critical.value == pytest.approx(1_000 * fit(sizes, steps).critical.value, rel=1e-9)


@pytest.mark.parametrize(
    ("sizes", "said", "hint"),
    [
        ([2.0**k for k in range(-8, -3)], "below the knee", "above 0"),
        ([2.0**k for k in range(3, 9)], "above the knee", "below 8"),
    ],
)
def test_batches_on_one_side_of_the_knee_are_refused(sizes, said, hint):
    """And which ones are missing is said."""
    with pytest.raises(PacelineError, match=said) as refused:
        fit(sizes, [steps_of(size) for size in sizes])

    assert hint in str(refused.value.hint)


def test_two_batch_sizes_are_refused():
    """However many runs there are of each."""
    with pytest.raises(PacelineError, match="too few"):
        fit([8, 8, 8, 64, 64, 64], [100, 101, 99, 40, 41, 39])


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    """S_min 200 and E_min 51,200 with 8 % noise, five sizes, three seeds: 300 repeats of 90 % intervals."""
    generator = np.random.default_rng(0)
    sizes = np.repeat([32.0, 128.0, 512.0, 2048.0, 8192.0], 3)
    inside = reached = 0
    for _ in range(300):
        steps = (200 + 51_200 / sizes) * (1 + 0.08 * generator.standard_normal(len(sizes)))
        found = fit(sizes, steps)
        inside += found.critical.low <= 256 <= found.critical.high
        interval = found.steps(1024)
        reached += interval.low <= 250 <= interval.high

    assert 0.84 <= inside / 300 <= 0.96
    assert 0.84 <= reached / 300 <= 0.96


@pytest.mark.parametrize(("sizes", "seeds"), [((64, 256, 1024), 1), ((32, 128, 512, 2048), 2)])
def test_intervals_of_few_runs_hold_the_truth_as_often_as_they_say(sizes, seeds):
    """Three runs leave one degree of freedom, eight leave six: 500 repeats of 90 % intervals, 5 % noise."""
    generator = np.random.default_rng(1)
    runs = np.repeat(np.array(sizes, dtype=float), seeds)
    inside = reached = 0
    for _ in range(500):
        found = fit(runs, (200 + 51_200 / runs) * (1 + 0.05 * generator.standard_normal(len(runs))))
        inside += found.critical.low <= 256 <= found.critical.high
        interval = found.steps(4096)
        reached += interval.low <= 212.5 <= interval.high

    assert 0.86 <= inside / 500 <= 0.94
    assert 0.86 <= reached / 500 <= 0.94


def test_intervals_are_those_of_a_linear_fit():
    """Against a general least-squares solver with its covariance: S_min, E_min, and a batch in between."""
    sizes, steps = np.array([32.0, 128, 512, 2048, 8192]), np.array([1750.0, 650, 280, 235, 199])
    found = fit(sizes, steps)
    expected = found.least_steps.value + found.least_samples.value / sizes
    design = np.stack([1 / expected, 1 / (sizes * expected)], axis=1)

    (least, samples), squares, *_ = np.linalg.lstsq(design, steps / expected, rcond=None)

    covariance = np.linalg.inv(design.T @ design) * squares[0] / 3
    t = 2.3533634  # of 3 degrees of freedom, 95 % below
    assert [found.least_steps.value, found.least_samples.value] == pytest.approx([least, samples], rel=1e-3)
    for interval, weights in ((found.least_steps, [1, 0]), (found.steps(300), [1, 1 / 300])):
        reach = t * math.sqrt(np.array(weights) @ covariance @ np.array(weights))
        assert interval.high - interval.value == pytest.approx(reach, rel=1e-3)
        assert interval.value - interval.low == pytest.approx(reach, rel=1e-3)


def test_coefficients_are_never_below_zero():
    """Steps that fall faster than 1 / B would ask for a negative least: it is 0 then, and the knee is beyond all."""
    with pytest.raises(PacelineError, match="below the knee"):
        fit([1, 2, 4, 8], [1000, 480, 230, 110])
    with pytest.raises(PacelineError, match="above the knee"):
        fit([1, 2, 4, 8], [100, 101, 102, 103])
