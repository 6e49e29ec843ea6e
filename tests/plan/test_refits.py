"""Intervals of a step's time hold what they should, as often as they should."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.plan.discrepancy import Discrepancy
from paceline.plan.refits import Predictor, refits
from paceline.plan.step_fit import fit
from paceline.plan.step_time import Coefficients, Observed, Setting
from tests.plan.test_step_time import NETWORK, SIZE, true_model

TRIALS = 20


class _Exact(Discrepancy):
    """A formula without an error of its own."""

    def deviation(self, setting, parts):
        """None."""
        return 0.0


EXACT = _Exact({1: 0.0}, (1, 1), (1, 1))


def drawn_truth(generator):
    """Numbers as priors have them: late 0.3, slower 1 by a factor of 2, crowding up to some tenths."""
    return Coefficients(
        fixed=0.004,
        slope=0.0008,
        floor=0.0,
        rest=0.003,
        late=float(np.clip(generator.normal(0.3, 0.3), 0, 1)),
        slower=float(np.exp(generator.normal(0, 0.7))),
        crowding=max(0.0, generator.normal(0, 0.3)),
    )


@pytest.mark.slow
def test_four_of_five_intervals_hold_a_truth_that_only_priors_speak_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of 8 and 64 workers, from runs of one worker with 3 % of noise: 80 % of truths, and not nearly all."""
    monkeypatch.setattr("paceline.plan.refits.REFITS", 30)
    generator = np.random.default_rng(7)
    inside = []

    for _ in range(TRIALS):
        truth = true_model(coefficients=drawn_truth(generator))
        settings = [Setting(1, micro) for micro in (16, 32, 64, 128)]
        seen = [Observed(s, truth.step_s(s) * float(np.exp(generator.normal(0, 0.03)))) for s in settings]
        model = fit(seen, NETWORK, SIZE)
        refitted = refits(model, seen, None, lambda done, total: None)
        for workers in (8, 64):
            found = Predictor(model, refitted, EXACT, 0.8).step(Setting(workers, 64))
            inside.append(found.low <= truth.step_s(Setting(workers, 64)) <= found.high)

    assert 0.65 <= np.mean(inside) <= 0.95


def test_without_refits_nothing_is_known_of_the_ends() -> None:
    """From 0 to no end."""
    found = Predictor(true_model(), [], EXACT, 0.8).step(Setting(2, 64))

    assert (found.low, found.value, found.high) == (0.0, true_model().step_s(Setting(2, 64)), float("inf"))
