"""The noise scale of a run's gradients, where the report draws it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from paceline.records.rundir import RunDir
from paceline.records.schema import GradientNorms
from paceline.records.writer import EventWriter
from paceline.report.page.run_page import render_page
from paceline.report.run_record import load_run
from paceline.report.summary import summarise
from tests.report.conftest import Runs


def with_norms(runs: Runs, name: str, noise: float, steps: int = 20, every: int = 1) -> Path:
    """A run of two ranks of 32 samples each, whose gradients have length 1 and a noise scale of `noise`."""
    generator = np.random.default_rng(0)
    path = runs.plain(name)
    parts: list[list[GradientNorms]] = [[], []]
    for step in range(1, steps + 1, every):
        gradient = np.zeros(50)
        gradient[0] = 1.0
        means = gradient + generator.standard_normal((2, 50)) * np.sqrt(noise / 50 / 32)
        reduced = float((means.mean(0) ** 2).sum())
        for rank in (0, 1):
            square = float((means[rank] ** 2).sum())
            parts[rank].append(GradientNorms(step=step, batch=64, samples=[32], squares=[square], reduced=reduced))
    for rank in (0, 1):
        with EventWriter(RunDir(path).events(rank)) as writer:
            for event in ([Runs.start()] if rank else []) + parts[rank]:
                writer.write(event)
    return path


def test_windows_stand_where_their_last_step_stands(runs: Runs) -> None:
    """With samples and time of that step; the batch beside the noise scale, which is about the true one."""
    found = load_run(with_norms(runs, "a", noise=300.0)).noise

    assert found is not None
    assert (found.first.tolist(), found.step.tolist(), found.recorded.tolist()) == ([1], [20], [20])
    assert found.samples.tolist() == [64 * 20]
    assert found.batch.tolist() == [64]
    assert found.value[0] == pytest.approx(300, rel=0.5)
    assert found.low[0] < found.value[0] < found.high[0]


def test_the_page_draws_it_up_to_the_data_set_and_says_the_rest_in_words(runs: Runs) -> None:
    """Noise alone has no upper end: the drawing ends at the 640 samples of the training set, the table says so."""
    run = load_run(with_norms(runs, "a", noise=1e7))

    html = render_page([run], [summarise(run)])

    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S).group(1))
    (figure,) = [one for one in data["figures"] if one["id"] == "plot-noise"]
    drawn = figure["series"][1]
    assert drawn["y"] == drawn["high"] == [640]
    assert 'id="plot-noise"' in html
    assert "&gt;= the data set (640)" in html
    assert "no end" in html


def test_a_run_without_norms_has_no_such_figure(runs: Runs) -> None:
    """Nor has one with too few of them."""
    none = load_run(runs.plain("a"))
    few = load_run(with_norms(runs, "b", noise=300.0, every=4))

    assert none.noise is few.noise is None
    assert 'id="plot-noise"' not in render_page([none, few], [summarise(none), summarise(few)])
