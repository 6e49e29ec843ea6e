"""Gains and efficiencies, against numbers that were computed elsewhere."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.stats.goodput import efficiency, gain, strong_efficiency

SIZES = st.floats(1, 1e6)


def test_pollux_own_example():
    """phi = 1,000, M0 = 128, M = 1,024."""
    assert efficiency(1_000, 128, 1_024) == pytest.approx(0.557312, abs=5e-7)
    assert gain(1_000, 128, 1_024) == pytest.approx(4.458498, abs=5e-7)


@given(st.floats(0, 1e9), SIZES, st.floats(1, 1e3))
def test_a_step_gains_between_nothing_and_all_of_the_growth(phi, base, growth):
    """1 <= r <= B / B0, at most phi / B0 + 1; a sample never gains."""
    found = gain(phi, base, growth * base)

    assert 1 - 1e-9 <= found <= growth * (1 + 1e-9)
    assert found <= (phi / base + 1) * (1 + 1e-9)
    assert efficiency(phi, base, growth * base) <= 1 + 1e-9
    assert gain(math.inf, base, growth * base) == pytest.approx(growth)


def adascale(scale, *, steps=400):
    """Johnson et al.'s AdaScale on a noisy quadratic of five curvatures, in expectation: iterations and final loss."""
    curvatures, rate, batch = (1.0, 0.5, 0.25, 0.1, 0.05), 0.3, 8
    squares = [4.0] * 5
    done, iterations = 0.0, 0
    while done < steps - 1e-9:
        signal = sum(h * h * m for h, m in zip(curvatures, squares, strict=True))
        r = gain(5.0 / signal, batch, scale * batch)  # unit noise in each of the five directions
        lr = rate * r
        squares = [(1 - lr * h) ** 2 * m + lr * lr / (scale * batch) for h, m in zip(curvatures, squares, strict=True)]
        done, iterations = done + r, iterations + 1
    return iterations, 0.5 * sum(h * m for h, m in zip(curvatures, squares, strict=True))


@pytest.mark.parametrize(
    ("scale", "iterations", "loss"),
    [(1, 400, 0.04987), (2, 216, 0.05005), (4, 126, 0.05045), (8, 86, 0.05138)],
)
def test_the_gain_is_what_makes_adascale_keep_the_loss(scale, iterations, loss):
    """With the gain as factor of the rate, and steps that count as much: within 3 % up to 8 times the batch, where the
    linear rule has diverged."""
    found = adascale(scale)

    assert found[0] == pytest.approx(iterations, abs=1)
    assert found[1] == pytest.approx(loss, abs=5e-6)


def test_strong_scaling_of_published_records():
    """MLPerf 3.0, ResNet-50, minutes on 8 to 3,584 H100: each beside 8 devices."""
    minutes = {8: 13.466, 64: 2.664, 512: 0.509, 768: 0.369, 3584: 0.183}

    found = [strong_efficiency(minutes[8], minutes[count], count / 8) for count in (64, 512, 768, 3584)]

    assert found == pytest.approx([0.6319, 0.4134, 0.3801, 0.1643], abs=5e-5)
    assert minutes[8] / minutes[3584] == pytest.approx(73.58, abs=0.01)
