"""The studies' statistics, against numbers worked out by hand."""

import math

import numpy as np
import pytest
from bench.harness import Interval
from bench.studies.compare import arrivals, difference_of_means, mean_interval, verdict

T_975 = {2: 4.302652729911275, 4: 2.7764451051977987, 8: 2.306004135033371}
"""Student's t at 0.975, from tables."""


def test_welchs_interval_is_the_one_worked_out_by_hand():
    """Means 3 and 5, variances 2.5 and 2.5, n = 5 each: 8 degrees of freedom, standard error 1, reach 2.306."""
    found = difference_of_means([1, 2, 3, 4, 5], [3, 4, 5, 6, 7])

    assert found.degrees == pytest.approx(8.0)
    assert found.interval.value == pytest.approx(-2.0)
    assert (found.interval.low, found.interval.high) == pytest.approx((-2 - T_975[8], -2 + T_975[8]))


def test_unequal_variances_cost_degrees_of_freedom():
    """Variances 1 and 100 with n = 3 each: (101/3)^2 / ((1/3)^2/2 + (100/3)^2/2) = 2 x 101^2 / 10001 degrees."""
    found = difference_of_means([1, 2, 3], [0, 10, 20])

    assert found.degrees == pytest.approx(2 * 101**2 / 10001)
    assert found.interval.value == pytest.approx(-8.0)


def test_welchs_interval_holds_the_truth_as_often_as_it_says():
    """Of 400 simulated confirmations with 10 runs a side and a true difference of 0.2, 95 % hold it, within chance."""
    random = np.random.default_rng(1)

    held = 0
    for _ in range(400):
        interval = difference_of_means(random.normal(0.2, 0.3, 10), random.normal(0, 0.1, 10), resamples=2).interval
        held += interval.low <= 0.2 <= interval.high

    assert 365 <= held <= 395


def test_the_bootstrap_agrees_with_welch_where_all_is_well():
    """For normal values both intervals differ by less than a third of their length."""
    random = np.random.default_rng(2)

    found = difference_of_means(random.normal(1, 0.2, 10), random.normal(0, 0.2, 10))

    reach = found.interval.high - found.interval.low
    assert found.bootstrap.low == pytest.approx(found.interval.low, abs=reach / 3)
    assert found.bootstrap.high == pytest.approx(found.interval.high, abs=reach / 3)
    assert min(p for p in found.normality if p is not None) > 0.05


def test_normality_is_doubted_where_one_run_lies_far_off():
    """Nine equal-ish runs and one far outlier give a tiny p; all-equal values give none."""
    outlier = [90.1, 90.2, 90.15, 90.12, 90.18, 90.11, 90.16, 90.14, 90.13, 10.0]

    found = difference_of_means(outlier, [90.0] * 10)

    assert found.normality[0] is not None
    assert found.normality[0] < 0.001
    assert found.normality[1] is None


@pytest.mark.parametrize(
    ("first", "second"),
    [([1, 2], [1, 2, 3]), ([1, 2, 3], []), ([1, 2, math.nan], [1, 2, 3]), ([1, 2, 3], [1, 2, math.inf])],
)
def test_too_few_or_senseless_values_are_refused(first, second):
    """No interval is made up from two runs or from a diverged one."""
    with pytest.raises(ValueError, match="at least 3 finite values"):
        difference_of_means(first, second)


def test_a_means_interval_is_students():
    """1, 2, 3, 4, 5: mean 3, standard error sqrt(0.5), 4 degrees of freedom; below 3 values there is none."""
    found = mean_interval([1, 2, 3, 4, 5])

    assert found is not None
    assert (found.low, found.high) == pytest.approx((3 - T_975[4] * math.sqrt(0.5), 3 + T_975[4] * math.sqrt(0.5)))
    assert mean_interval([1.0, 2.0]) is None


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (-0.29, 0.1, "kept"),
        (0.1, 0.5, "kept"),
        (-0.3, 0.1, "not shown"),
        (-0.5, -0.1, "not shown"),
        (-0.9, -0.31, "lost"),
        (-0.9, -0.3, "not shown"),
    ],
)
def test_kept_needs_the_whole_interval_above_the_margin(low, high, word):
    """An interval that touches -0.3 points keeps nothing and loses nothing."""
    assert verdict(Interval((low + high) / 2, low, high)) == word


def test_a_run_that_was_cut_off_counts_as_later_than_all_others():
    """Two of three arrived: the median is the later of them, and what is beyond is known."""
    found = arrivals([400.0, None, 300.0], [None, 900.0, None])

    assert (found.median, found.low, found.high) == (400.0, 300.0, 400.0)
    assert (found.arrived, found.runs, found.beyond) == (2, 3, 900.0)


def test_where_most_were_cut_off_there_is_no_median_but_a_bound():
    """One of three arrived: only the least time of giving up is known; a diverged run bounds nothing."""
    found = arrivals([300.0, None, None], [None, 900.0, 800.0])
    lost = arrivals([None], [None])

    assert (found.median, found.beyond) == (None, 800.0)
    assert (lost.median, lost.beyond, lost.arrived) == (None, None, 0)


def test_of_two_runs_the_later_one_is_the_median():
    """So a pair of which one was cut off has no median, instead of that of the one that arrived."""
    assert arrivals([300.0, 400.0], [None, None]).median == 400.0
    assert arrivals([300.0, None], [None, 900.0]).median is None


def test_arrivals_of_nothing_are_refused():
    """There is no median of no runs."""
    with pytest.raises(ValueError, match="at least one"):
        arrivals([], [])
