"""Recommendations: the fastest that is efficient enough, with a rate that fits its batch, and what would change it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paceline.plan.advise import WARM_UP, Wish, recommend
from paceline.plan.batch import table, usual_batches
from paceline.plan.collectives import Link, Network
from paceline.plan.step_time import Coefficients, Jitter, StepTime
from paceline.plan.steps import Steps
from paceline.stats.hyperbola import fit

SIZES = [64, 256, 1024, 4096]
STEPS = Steps("hyperbola", 64, hyperbola=fit(SIZES, [400 + 400 * 512 / size for size in SIZES]))
SPEED = StepTime(
    Coefficients(0.002, 0.0002, 0.0, 0.001, 0.3, 1.0, 0.0), Network(Link(2e-4, 1e9)), 4e6, Jitter(np.ones(0)), 2
)
WISH = Wish("digits", "sgd", 0.1, target="accuracy=0.9")


def test_the_table_has_steps_times_and_both_efficiencies() -> None:
    """Time is steps times the step; a batch is not shared out among more workers than it has samples."""
    rows = {(row.batch, row.workers): row for row in table(STEPS, SPEED, [4, 64, 1024], [1, 8])}

    assert rows.keys() == {(4, 1), (64, 1), (64, 8), (1024, 1), (1024, 8)}
    row = rows[1024, 8]
    step_s = 1024 / row.samples_per_s
    assert row.steps.value == pytest.approx(600, rel=1e-6)
    assert row.time_s.value == pytest.approx(600 * step_s, rel=1e-6)
    assert row.samples == pytest.approx(600 * 1024, rel=1e-6)
    assert row.statistical == pytest.approx(STEPS.hyperbola.samples(64) / STEPS.hyperbola.samples(1024))
    assert rows[64, 1].system == 1 > row.system > 0
    assert table(STEPS, None, [64], [1])[0].time_s is None


def test_the_fastest_setting_that_is_efficient_enough_is_recommended() -> None:
    """Against the whole table, by brute force; asking for more efficiency takes fewer workers or a smaller batch."""
    rows = table(STEPS, SPEED, [64, 128, 256, 512, 1024, 2048], [1, 2, 4, 8, 16])
    efficient = [row for row in rows if row.system * row.statistical >= 0.5]
    fastest = min(efficient, key=lambda row: row.time_s.value)

    found = recommend(rows, STEPS, WISH)
    strict = recommend(rows, STEPS, Wish("digits", "sgd", 0.1, least_efficiency=0.8))

    assert (found.batch, found.workers) == (fastest.batch, fastest.workers)
    assert strict.batch <= found.batch
    assert recommend(rows, STEPS, Wish("digits", "sgd", 0.1, least_efficiency=1.01)) is None
    assert found.command.startswith(f"paceline train digits --global-batch {found.batch} --workers {found.workers}")
    assert "--target accuracy=0.9" in found.command


@pytest.mark.parametrize(("optimizer", "factor"), [("sgd", None), ("adamw", math.sqrt(16))])
def test_the_rate_grows_with_what_a_step_gains(optimizer: str, factor: float | None) -> None:
    """For SGD with the progress of a step, which is less than linear; for Adam and its kin with the root."""
    rows = table(STEPS, None, [1024], [1])

    found = recommend(rows, STEPS, Wish("digits", optimizer, 0.1, least_efficiency=0.1))

    gain = STEPS.hyperbola.steps(64) / STEPS.hyperbola.steps(1024)
    assert found.lr == pytest.approx(0.1 * (factor or gain))
    assert found.warmup == WARM_UP
    assert any("plan speed" in reason for reason in found.unless)
    assert found.workers is None
    assert "--workers" not in found.command


def test_usual_batches_reach_beyond_the_knee_and_no_further() -> None:
    """Powers of two of the base, to four times the critical batch, or the data set."""
    assert usual_batches(64, 512, 10**6) == [64, 128, 256, 512, 1024, 2048]
    assert usual_batches(64, 512, 600) == [64, 128, 256, 512]
    assert usual_batches(64, None, 10**6)[-1] == 64 * 64
