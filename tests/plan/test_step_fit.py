"""Fits of the model of a step: they find what was put in, and predict what they have not seen."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from paceline.plan.step_fit import drawn_priors, fit, held_out
from paceline.plan.step_time import Observed, Setting
from paceline.records.errors import PacelineError
from tests.plan.test_step_time import NETWORK, SIZE, TRUTH, true_model


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


@pytest.mark.parametrize("bound", [0.0, 0.4, 1.0])
def test_taking_turns_is_found_from_one_more_worker_than_there_are_cores(bound):
    """Three workers on two cores show what twelve on them would take; a fit that knows of no cores cannot."""
    truth = true_model(coefficients=replace(TRUTH, bound=bound), processors=2.0)
    seen = observed(SEEN, model=truth)

    found = fit(seen, NETWORK, SIZE, processors=2.0)
    blind = fit(seen, NETWORK, SIZE)

    assert found.coefficients.bound == pytest.approx(bound, abs=0.08)
    for setting in UNSEEN:
        assert found.step_s(setting) == pytest.approx(truth.step_s(setting), rel=0.1)
    if bound:
        last = UNSEEN[-1]
        assert blind.step_s(last) < 0.85 * truth.step_s(last)


def test_priors_decide_what_no_run_has_shown():
    """Without a run in which workers took turns, all of a step is taken to be the processor's, or what a prior says."""
    seen = observed([Setting(k, b) for k in (1, 2) for b in (8, 32, 128)])

    usual = fit(seen, NETWORK, SIZE, processors=2.0)
    other = fit(seen, NETWORK, SIZE, processors=2.0, priors=np.array([0.0, 0.0, 0.3, 0.0, 0.0, 0.2]))

    assert usual.coefficients.bound == pytest.approx(1.0, abs=0.01)
    assert other.coefficients.bound == pytest.approx(0.2, abs=0.01)
    assert other.step_s(Setting(2, 64)) == pytest.approx(usual.step_s(Setting(2, 64)), rel=1e-3)


def test_priors_are_drawn_about_their_means():
    """As far off as their deviations say."""
    generator = np.random.default_rng(0)

    drawn = np.array([drawn_priors(generator) for _ in range(2_000)])

    assert np.mean(drawn[:, 2]) == pytest.approx(0.3, abs=0.03)
    assert np.std(drawn[:, 3]) == pytest.approx(0.7, rel=0.1)


def test_one_odd_measurement_does_not_spoil_the_others():
    """A setting that took three times as long, because something else ran."""
    rows = observed(SEEN)
    rows[4] = Observed(rows[4].setting, 3 * rows[4].step_s)

    found = fit(rows, NETWORK, SIZE)

    assert np.median([abs(found.step_s(s) / true_model().step_s(s) - 1) for s in UNSEEN]) < 0.05


def test_settings_with_most_workers_and_largest_batches_are_held_out():
    """Each predicted by a fit that has not seen it."""
    checked = held_out(observed(SEEN), NETWORK, SIZE)

    assert {c.what for c in checked} == {str(s) for s in SEEN if s.workers == 3 or s.micro == 128}
    assert max(abs(c.error) for c in checked) < 0.05


def test_one_batch_size_is_refused():
    """Work cannot be told from overhead then."""
    with pytest.raises(PacelineError, match="same batch a worker"):
        fit(observed([Setting(1, 32), Setting(2, 32)]), NETWORK, SIZE)


def test_only_steps_of_one_worker_show_jitter():
    """Several wait for each other in every step, so that their times say nothing of one of them."""
    uneven = 0.1 + np.random.default_rng(0).exponential(0.01, size=60)
    together, alone = (
        [replace(row, times=uneven) for row in observed(SEEN) if row.setting.workers in k] for k in ((2, 3), (1,))
    )

    assert fit(together, NETWORK, SIZE).jitter.facts.steps == 0
    assert fit(alone, NETWORK, SIZE).jitter.facts.steps == 5 * 60
