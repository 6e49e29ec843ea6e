"""Answers of plan speed: rows that add up, efficiencies as defined, warnings where only the formula speaks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paceline.plan.collectives import Link, Network
from paceline.plan.rows import timing_of
from paceline.plan.speed import FAR, Question, network_facts, predict
from paceline.plan.step_time import Jitter, Setting, StepTime
from paceline.stats.goodput import efficiency
from tests.plan.runs import training
from tests.plan.test_step_time import TRUTH

NETWORK = Network(Link(1e-3, 200e6))


def result(tmp_path: Path, workers=(1, 2), **more):
    """From runs whose steps take what the model says, with the runs themselves."""
    truth = StepTime(TRUTH, NETWORK, 4e6, Jitter(np.ones(0)), 1)
    paths = [
        training(tmp_path / f"{k}-{b}", workers=k, micro=b, times=[truth.step_s(Setting(k, b))] * 40)
        for k in workers
        for b in (16, 64, 128)
    ]
    question = Question(task="digits", workers=(1, 4, 64), batch=256, micro=64, at=4, **more)
    return truth, predict([timing_of(path) for path in paths], NETWORK, network_facts(NETWORK, "given"), question)


def test_rows_are_the_models_predictions(tmp_path: Path) -> None:
    """Strong scaling shares one batch out, weak scaling gives each worker its own; parts add up to the step."""
    truth, found = result(tmp_path)

    rows = {(row.scaling, row.workers): row for row in found.rows}
    assert rows.keys() == {(s, k) for s in ("strong", "weak") for k in (1, 4, 64)}
    for (scaling, workers), row in rows.items():
        setting = Setting(workers, 256 / workers if scaling == "strong" else 64)
        assert row.batch == pytest.approx(setting.batch)
        assert row.step_s.value == pytest.approx(truth.step_s(setting), rel=0.05 if workers <= 4 else 0.15)
        assert row.step_s.low <= row.step_s.value <= row.step_s.high
        parts = row.parts
        total = parts.work_s + parts.floor_s + parts.network_s + parts.jitter_s + parts.rest_s
        assert total == pytest.approx(row.step_s.value)
    strong, weak = rows["strong", 4], rows["weak", 4]
    assert strong.efficiency == pytest.approx(rows["strong", 1].step_s.value / (4 * strong.step_s.value))
    assert weak.efficiency == pytest.approx(weak.samples_per_s / (4 * rows["weak", 1].samples_per_s))
    assert rows["weak", 1].efficiency == 1


def test_a_noise_scale_makes_efficiency_towards_a_target(tmp_path: Path) -> None:
    """A larger batch makes less of each sample; strong scaling keeps the batch, so it loses nothing there."""
    _, found = result(tmp_path, noise_scale=500.0)

    for row in found.rows:
        base = 256 if row.scaling == "strong" else 64
        assert row.target_efficiency == pytest.approx(row.efficiency * efficiency(500.0, base, row.batch))


def test_mending_the_network_gains_where_the_network_is_what_holds_a_step_up(tmp_path: Path) -> None:
    """The largest gain first; no network at all gains more than one twice as fast."""
    _, found = result(tmp_path)
    gains = {one.what: one.gain for one in found.mending}

    assert [one.gain for one in found.mending] == sorted((one.gain for one in found.mending), reverse=True)
    assert gains["no network at all"] > gains["a network twice as fast"] > 0
    assert gains["no jitter between workers"] == 0


def test_what_only_the_formula_says_is_warned_of(tmp_path: Path) -> None:
    """More than 16 times the workers that were measured; and one number of workers hides how a sum overlaps."""
    _, found = result(tmp_path)
    assert any("64 workers are over 16 times the 2" in warning for warning in found.warnings)
    assert all((row.beyond > FAR) == (row.workers == 64) for row in found.rows)
    assert max(row.workers for row in found.curve) >= 4096

    _, alone = result(tmp_path / "alone", workers=(1,))
    assert any("same number of workers" in warning for warning in alone.warnings)


def test_held_out_runs_are_named_with_both_numbers(tmp_path: Path) -> None:
    """Those with the most workers and those with the largest batch."""
    _, found = result(tmp_path)

    assert {held.what for held in found.evidence.held_out} >= {
        "2 workers, 16 samples each",
        "1 worker, 128 samples each",
    }
    assert max(abs(held.error) for held in found.evidence.held_out) < 0.1
