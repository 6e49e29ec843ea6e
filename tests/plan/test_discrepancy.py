"""The error of the formula itself: where it is small, where it grows, and the interval that it makes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from paceline.plan.discrepancy import Discrepancy, quantile_of_mixture
from paceline.plan.step_time import Setting
from paceline.records.plan_results import StepParts

FROM = Discrepancy({1: 0.01, 4: 0.05}, workers=(1, 4), micro=(16, 256), turns=2.0, processors=2.0)
WORK = StepParts(work_s=0.1, floor_s=0.0, sharing_s=0.0, network_s=0.0, jitter_s=0.0, rest_s=0.0)
HALF = StepParts(work_s=0.05, floor_s=0.0, sharing_s=0.02, network_s=0.03, jitter_s=0.0, rest_s=0.0)


def test_work_alone_is_known_as_well_as_runs_scatter() -> None:
    """Whatever the batch: the error belongs to the network and to what workers share."""
    for micro in (16, 64, 2048):
        assert FROM.deviation(Setting(1, micro), WORK) == pytest.approx(math.hypot(0.003, 0.008))


def test_it_grows_with_the_distance_from_what_was_measured() -> None:
    """With more workers, larger and smaller batches than any run, and with the part of the step that is uncertain."""
    within = FROM.deviation(Setting(4, 64), HALF)

    for outside in (Setting(5, 64), Setting(4, 512), Setting(4, 8)):
        assert FROM.deviation(outside, HALF) > within
    assert FROM.deviation(Setting(8, 64), HALF) > FROM.deviation(Setting(6, 64), HALF)
    assert FROM.deviation(Setting(8, 1024), HALF) > FROM.deviation(Setting(8, 64), HALF)
    assert FROM.deviation(Setting(4, 64), HALF) > FROM.deviation(Setting(4, 64), WORK)


def test_workers_that_take_turns_count_most() -> None:
    """Eight on two cores, where runs had four, against eight with a core of their own, and eight on two machines."""
    own = Discrepancy(FROM.noise, FROM.workers, FROM.micro)

    turns = FROM.deviation(Setting(8, 64), HALF)

    assert turns > 1.5 * own.deviation(Setting(8, 64), HALF)
    assert FROM.deviation(Setting(8, 64, per_node=4), HALF) == own.deviation(Setting(8, 64), HALF)


def test_turns_that_no_run_took_are_hardly_known() -> None:
    """Four on two cores, where runs had two: a quarter at least, even of a step that is said to be all work."""
    two = Discrepancy({1: 0.01, 2: 0.01}, workers=(1, 2), micro=(16, 256), turns=1.0, processors=2.0)

    assert two.deviation(Setting(4, 64), WORK) > 0.25
    assert two.deviation(Setting(2, 64), WORK) < 0.01
    assert FROM.deviation(Setting(4, 64), WORK) < 0.05


@pytest.mark.parametrize("chance", [0.1, 0.5, 0.9])
def test_quantiles_of_a_mixture_are_those_of_its_distribution(chance: float) -> None:
    """Of one normal, of one without width, and of several: as many of two million draws lie below."""
    generator = np.random.default_rng(0)
    means, deviations = [0.0, 1.0, 5.0], [1.0, 0.2, 0.0]
    draws = generator.choice(3, 2_000_000)
    drawn = np.array(means)[draws] + np.array(deviations)[draws] * generator.standard_normal(len(draws))

    assert quantile_of_mixture([2.0], [3.0], chance) == pytest.approx(norm.ppf(chance, 2, 3))
    assert quantile_of_mixture([2.0, 2.0], [0.0, 0.0], chance) == pytest.approx(2.0)
    assert quantile_of_mixture(means, deviations, chance) == pytest.approx(np.quantile(drawn, chance), abs=0.01)
