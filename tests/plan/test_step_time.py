"""The model of a step: it finds what was put in, predicts what it has not seen, and names what holds a step up."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paceline.plan.collectives import Link, Network
from paceline.plan.step_time import Coefficients, Jitter, Observed, Setting, StepTime, fit, held_out
from paceline.records.errors import PacelineError

NETWORK = Network(Link(1e-3, 200e6))
SIZE = 8e6
TRUTH = Coefficients(fixed=0.004, slope=0.0008, floor=0.02, rest=0.003, late=0.25, slower=1.2, crowding=0.1)


def true_model(network=NETWORK, coefficients=TRUTH, jitter=None):
    """What measurements are made from."""
    return StepTime(coefficients, network, SIZE, jitter or Jitter(np.ones(0)), 1)


def observed(settings, noise=0.0, seed=0, model=None):
    """Median times at these settings."""
    generator = np.random.default_rng(seed)
    model = model or true_model()
    return [Observed(s, model.step_s(s) * math.exp(noise * generator.standard_normal())) for s in settings]


SEEN = [Setting(k, b, s) for k in (1, 2, 3) for b, s in ((8, 1), (32, 1), (64, 1), (128, 1), (32, 4))]
UNSEEN = [Setting(k, b) for k in (4, 6, 8, 12) for b in (32, 128, 512)]


def test_what_was_put_in_is_found():
    """Within 5 %, from settings without noise; and unseen ones are predicted within 2 %."""
    found = fit(observed(SEEN), NETWORK, SIZE)

    assert found.coefficients.slope == pytest.approx(TRUTH.slope, rel=0.05)
    assert found.coefficients.floor == pytest.approx(TRUTH.floor, rel=0.05)
    assert found.coefficients.slower == pytest.approx(TRUTH.slower, rel=0.1)
    for setting in UNSEEN:
        assert found.step_s(setting) == pytest.approx(true_model().step_s(setting), rel=0.02)


def test_unseen_settings_are_predicted_within_ten_per_cent_in_noise():
    """3 % of noise on each measured median; at up to 4 times the workers and 4 times the batch."""
    for seed in range(5):
        found = fit(observed(SEEN, 0.03, seed), NETWORK, SIZE)
        errors = [abs(found.step_s(s) / true_model().step_s(s) - 1) for s in UNSEEN]
        assert np.median(errors) < 0.05
        assert max(errors) < 0.12


def test_one_odd_measurement_does_not_spoil_the_others():
    """A setting that took three times as long, because something else ran."""
    rows = observed(SEEN)
    rows[4] = Observed(rows[4].setting, 3 * rows[4].step_s)

    found = fit(rows, NETWORK, SIZE)

    assert np.median([abs(found.step_s(s) / true_model().step_s(s) - 1) for s in UNSEEN]) < 0.05


def test_parts_add_up_to_the_step_and_name_the_bottleneck():
    """One worker has no network; a slow network shows; small micro-batches stand on the floor."""
    slow = true_model(Network(Link(1e-3, 20e6)))

    alone, many, small = (slow.parts(Setting(k, b)) for k, b in ((1, 128), (8, 128), (8, 1)))

    assert alone.network == alone.jitter == alone.floor == 0
    assert many.network > many.work
    assert small.floor > small.work
    for parts, setting in ((alone, Setting(1, 128)), (many, Setting(8, 128)), (small, Setting(8, 1))):
        assert parts.total == pytest.approx(slow.step_s(setting))


def test_a_sum_hides_behind_the_backward_as_far_as_that_reaches():
    """More work hides more; the part that comes too late never hides."""
    model = true_model(coefficients=Coefficients(0.0, 0.001, 0.0, 0.0, 0.25, 1.0, 0.0))
    whole = NETWORK.all_reduce(4, SIZE)

    shown = [model.parts(Setting(4, b)).network for b in (1, 100, 1_000, 100_000)]

    assert shown == sorted(shown, reverse=True)
    assert shown[0] == pytest.approx(whole, rel=0.05)
    assert shown[-1] == pytest.approx(0.25 * whole, rel=0.01)


def test_jitter_is_the_slowest_of_many():
    """Against draws: the median of the largest of k, measured where there are steps enough, from a tail beyond."""
    generator = np.random.default_rng(0)
    jitter = Jitter(1 + generator.exponential(0.1, size=4_000))

    for workers in (2, 8, 64, 500):
        drawn = np.median((1 + generator.exponential(0.1, size=(4_000, workers))).max(axis=1))
        assert jitter(workers) == pytest.approx(drawn - (1 + 0.1 * math.log(2)), rel=0.08)
    few = Jitter(1 + generator.exponential(0.1, size=200))
    assert few.seen < 64
    assert few(1_000) == pytest.approx(0.1 * math.log(1_000), rel=0.5)
    assert Jitter(np.ones(0))(64) == 0


def test_settings_with_most_workers_and_largest_batches_are_held_out():
    """Each predicted by a fit that has not seen it."""
    checked = held_out(observed(SEEN), NETWORK, SIZE)

    assert {c.setting for c in checked} == {s for s in SEEN if s.workers == 3 or s.micro == 128}
    assert max(abs(c.error) for c in checked) < 0.05


def test_one_batch_size_is_refused():
    """Work cannot be told from overhead then."""
    with pytest.raises(PacelineError, match="one batch size"):
        fit(observed([Setting(1, 32), Setting(2, 32)]), NETWORK, SIZE)
