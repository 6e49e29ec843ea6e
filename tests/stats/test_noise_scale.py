"""The noise scale: unbiased, with an interval that holds the truth, and silent where there is nothing to say."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.records.errors import PacelineError
from paceline.records.gradients import StepNorms
from paceline.stats.noise_scale import LEAST_STEPS, NoiseScale, fieller, noise_scale, over_training, split
from paceline.stats.noise_scale import estimates as of_rows


def gradients(generator, steps, groups, size, *, dimensions=10, noise=1.0):
    """(steps, groups, dimensions) means of `size` gradients of the regression whose noise scale is 21: inputs of unit
    covariance, weights one unit away from the truth, noise of deviation 1."""
    x = generator.standard_normal((steps, groups, size, dimensions))
    away = np.zeros(dimensions)
    away[0] = 1.0
    errors = x @ away + noise * generator.standard_normal((steps, groups, size))
    return (x * errors[..., None]).mean(axis=2)


def estimates(means, size):
    """Of every step."""
    found = [split([size] * means.shape[1], (step**2).sum(1), float((step.mean(0) ** 2).sum())) for step in means]
    return np.array(found).T


@pytest.mark.parametrize("groups", [2, 4, 7])
def test_of_equal_groups_the_signal_is_the_mean_product_of_two(groups):
    """The U-statistic mean over i != j of g_i . g_j, to rounding."""
    means = np.random.default_rng(groups).standard_normal((groups, 13))
    products = means @ means.T
    pairs = (products.sum() - np.trace(products)) / (groups * (groups - 1))

    noise, signal = split([5] * groups, (means**2).sum(1), float((means.mean(0) ** 2).sum()))

    assert signal == pytest.approx(pairs, abs=1e-10)
    two_batch = ((means**2).sum(1).mean() - (means.mean(0) ** 2).sum()) / (1 / 5 - 1 / (5 * groups))
    assert noise == pytest.approx(two_batch, rel=1e-12)


def test_groups_of_one_sample_give_the_trace_of_the_sample_covariance():
    """The per-example form, against numpy's covariance."""
    each = np.random.default_rng(0).standard_normal((40, 6)) @ np.diag([1, 2, 3, 4, 5, 6])

    noise, signal = split(np.ones(40), (each**2).sum(1), float((each.mean(0) ** 2).sum()))

    assert noise == pytest.approx(np.trace(np.cov(each.T)), rel=1e-12)
    assert signal == pytest.approx((each.mean(0) ** 2).sum() - noise / 40, rel=1e-12)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(0, 1000))
def test_uneven_groups_do_not_bias(sizes, seed):
    """Over all ways to hand out fixed gradients to the groups, the means are what equal groups of one sample give."""
    each = np.random.default_rng(seed).standard_normal((sum(sizes), 3)) + 0.5
    total = float((each.mean(0) ** 2).sum())
    exact, exact_signal = split(np.ones(len(each)), (each**2).sum(1), total)
    # The mean over all permutations of n |mean of n|^2 is known: n |g|^2 + (1 - (n - 1) / (N - 1)) V with V the
    # covariance of all, divided by N.
    count = len(each)
    spread = ((each - each.mean(0)) ** 2).sum() / count
    expected = [total + spread / n * (count - n) / (count - 1) for n in sizes]

    noise, signal = split(sizes, expected, total)

    assert noise == pytest.approx(exact, rel=1e-9, abs=1e-9)
    assert signal == pytest.approx(exact_signal, rel=1e-9, abs=1e-9)


def token_sums(generator, samples):
    """Sums (samples, 3) of each sample's token gradients, and counts: most samples have 1 to 3 tokens, some 40."""
    counts = np.where(generator.uniform(size=samples) < 0.8, generator.integers(1, 4, size=samples), 40).astype(float)
    noise = generator.standard_normal((samples, 3)) * np.sqrt(counts)[:, None]
    return counts[:, None] * np.array([0.5, 0.0, 0.0]) + noise, counts


@pytest.mark.parametrize("sizes", [[8, 8], [4] * 4, [2] * 8, [9, 4, 2, 1], [1] * 16])
def test_means_over_tokens_have_the_noise_scale_of_brute_force(sizes):
    """E|g - G|^2 / |G|^2 times the batch, at a batch in which lengths average out: tokens of unit covariance around a
    gradient of length 1/2 give 12 tokens. However the samples of a step are cut into groups."""
    generator = np.random.default_rng(3)
    sums, counts = token_sums(generator, 100_000)
    true = sums.sum(0) / counts.sum()
    drawn = generator.integers(len(counts), size=(2_000, 400))
    means = sums[drawn].sum(1) / counts[drawn].sum(1)[:, None]
    brute_force = ((means - true) ** 2).sum(1).mean() * 400 / (true**2).sum()

    edges = np.concatenate([[0], np.cumsum(sizes)])
    rows = []
    for step in range(4_000):
        chosen = generator.integers(len(counts), size=16)
        parts = [chosen[start:stop] for start, stop in itertools.pairwise(edges)]
        squares = [float(((sums[part].sum(0) / counts[part].sum()) ** 2).sum()) for part in parts]
        whole = float(((sums[chosen].sum(0) / counts[chosen].sum()) ** 2).sum())
        rows.append(StepNorms(step + 1, sizes, squares, whole, [float(counts[part].sum()) for part in parts]))
    _, noise, signal = of_rows(rows)
    found = noise_scale(noise, signal, confidence=0.99)

    assert brute_force == pytest.approx(12 / counts.mean(), rel=0.05)
    assert found.value == pytest.approx(brute_force, rel=0.1)
    assert found.low <= 12 / counts.mean() <= found.high


def test_a_group_that_counts_nothing_takes_no_part():
    """All of its tokens are masked: it is no mean of anything."""
    rows = [StepNorms(1, [2, 2, 2], [3.0, 0.0, 5.0], 2.0, [4.0, 0.0, 8.0])]
    without = [StepNorms(1, [3, 3], [3.0, 5.0], 2.0, [4.0, 8.0])]

    for one, other in zip(of_rows(rows), of_rows(without), strict=True):
        assert list(one) == list(other)


def test_one_group_or_a_gradient_that_is_no_number_gives_nothing():
    """Nothing is known of the noise between groups then."""
    assert split([4], [1.0], 1.0) is None
    assert split([4, 4], [1.0, float("nan")], 1.0) is None
    assert split([4, 4], [1.0, 1.0], float("inf")) is None


@pytest.mark.parametrize("groups", [2, 4])
def test_the_noise_scale_of_a_regression_is_21(groups):
    """Within 5 % of the closed form, over 20,000 steps; trace 21 and squared gradient 1 beside it."""
    means = gradients(np.random.default_rng(groups), 20_000, groups, 4)

    found = noise_scale(*estimates(means, 4))

    assert found.value == pytest.approx(21, rel=0.05)
    assert found.noise == pytest.approx(21, rel=0.03)
    assert found.signal == pytest.approx(1, rel=0.05)
    assert found.low < 21 < found.high


def test_intervals_hold_the_truth_as_often_as_they_say():
    """90 % intervals over 400 repeats of 400 steps: within three standard errors of 90 %, which are 4.5 points."""
    generator = np.random.default_rng(7)
    inside = 0
    for _ in range(400):
        found = noise_scale(*estimates(gradients(generator, 400, 2, 4), 4))
        inside += found.low <= 21 <= found.high

    assert 0.855 <= inside / 400 <= 0.945


def test_what_is_cut_off_at_each_step_would_be_biased():
    """Why nothing is cut off: clamped at 0 in each step, the mean of |G|^2 is a fifth too large."""
    _, signal = estimates(gradients(np.random.default_rng(1), 20_000, 2, 4), 4)

    assert signal.mean() == pytest.approx(1, rel=0.05)
    assert np.maximum(signal, 0).mean() > 1.2


def test_noise_alone_has_no_upper_end_and_is_at_least_the_data_set():
    """Gradients of mean 0: the ratio is no number to print, and the words say so."""
    means = np.random.default_rng(5).standard_normal((500, 2, 8))

    found = noise_scale(*estimates(means, 4), samples=1_000)

    assert math.isinf(found.high)
    assert found.low > 20
    assert NoiseScale(5e6, 3e4, math.inf, 1.0, 2e-7, 500, 0.9, 60_000).exhausts_data
    assert str(NoiseScale(5e6, 3e4, math.inf, 1.0, 2e-7, 500, 0.9, 60_000)) == ">= the data set (60,000 samples)"
    assert str(NoiseScale(950.2, 800, 1200, 1.0, 1e-3, 500, 0.9, 60_000)) == "950 [800, 1,200]"


def test_few_steps_are_refused():
    """With what is needed."""
    with pytest.raises(PacelineError, match="too few") as refused:
        noise_scale(np.ones(LEAST_STEPS - 1), np.ones(LEAST_STEPS - 1))

    assert str(LEAST_STEPS) in str(refused.value.hint)


def test_fieller_is_exact_for_a_normal_pair():
    """Coverage over 2,000 repeats with a denominator that is hardly above its error, where other intervals fail."""
    generator = np.random.default_rng(0)
    inside = 0
    for _ in range(2_000):
        pairs = generator.multivariate_normal([3.0, 1.0], [[1.0, 0.5], [0.5, 1.5]], size=8)
        found = fieller(pairs[:, 0], pairs[:, 1], 0.9)
        inside += found.low <= 3 <= found.high

    assert inside / 2_000 == pytest.approx(0.9, abs=0.025)


def test_windows_follow_a_noise_scale_that_grows():
    """Each recorded step is in one window; later windows find more."""
    generator = np.random.default_rng(2)
    parts = [estimates(gradients(generator, 2_000, 4, 4, noise=deviation), 4) for deviation in (1.0, 3.0)]
    noise, signal = np.concatenate(parts, axis=1)

    windows = over_training(range(1, 4_001), noise, signal, windows=2)

    assert [(window.first, window.last) for window in windows] == [(1, 2_000), (2_001, 4_000)]
    assert windows[0].found.value == pytest.approx(21, rel=0.15)
    assert windows[1].found.value == pytest.approx(101, rel=0.2)  # 1 + (1 + 9) 10
    assert over_training(range(5), noise[:5], signal[:5]) == []
    assert len(over_training(range(65), noise[:65], signal[:65])) == 3
