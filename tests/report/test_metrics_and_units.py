"""Every metric is shown, and speeds also in what the loss counts."""

from __future__ import annotations

import msgspec
import pytest

from paceline.records.schema import End, Evaluation, Measure, TaskFacts
from paceline.report.comparison import compare
from paceline.report.page.run_figures import metrics_of
from paceline.report.page.run_page import render_page
from paceline.report.quantities import quantities
from paceline.report.run_record import load_run
from paceline.report.summary import summarise


def measured(step: int, **values: float) -> Evaluation:
    """An evaluation of 1,000 samples."""
    metrics = {name: Measure(value=value, count=1000) for name, value in values.items()}
    return Evaluation(
        step=step, epoch=step / 10, samples=64 * step, elapsed_s=0.1 * step, duration_s=0.0, metrics=metrics
    )


def written(runs, name, values, *, count=64.0, unit=""):
    """A run of 20 steps of 0.1 s with two evaluations; its loss counts `count` a step."""
    info = runs.info(name)
    task = msgspec.structs.replace(info.task, unit=unit) if unit else info.task
    assert isinstance(task, TaskFacts)
    events = [runs.start(), *(runs.step(k, round(0.1 * k, 9), count=count) for k in range(1, 21))]
    events += [
        measured(10, **values[0]),
        measured(20, **values[1]),
        End(step=20, reason="finished", exit_code=0, elapsed_s=2.0),
    ]
    return load_run(runs.write(name, events, info=msgspec.structs.replace(info, task=task)))


def test_a_card_shows_every_metric(runs):
    """A task with two: both with what they were taken over and their best, and the loss once."""
    run = written(runs, "two", [{"loss": 0.5, "mae": 0.2, "r2": 0.7}, {"loss": 0.4, "mae": 0.3, "r2": 0.8}])

    shown = {tile.label: tile for tile in quantities(summarise(run))}

    assert list(shown)[:3] == ["final r2", "final mae", "final loss"]
    assert shown["final mae"].value == "0.3000"
    assert shown["final mae"].details[1].startswith("best 0.2000")


def test_what_belongs_to_another_number_gets_no_line_of_its_own(runs):
    """Raw weights beside an average, and the monitor of sharpness."""
    values = {"loss": 0.5, "accuracy": 0.7, "raw_accuracy": 0.6, "sharpness": 9.0, "stability_limit": 20.0}
    run = written(runs, "raw", [values, values])

    assert [tile.label for tile in quantities(summarise(run)) if tile.label.startswith("final")] == [
        "final accuracy",
        "final loss",
    ]


def test_a_comparison_draws_every_metric_of_every_run(runs):
    """Also one that the first run does not have."""
    first = written(runs, "first", [{"loss": 0.5, "mae": 0.2}, {"loss": 0.4, "mae": 0.1}])
    second = written(runs, "second", [{"loss": 0.5, "accuracy": 0.7}, {"loss": 0.4, "accuracy": 0.8}])
    loaded = [first, second]
    summaries = [summarise(run) for run in loaded]

    page = render_page(loaded, summaries)

    assert metrics_of(summaries) == ["mae", "accuracy"]
    for index, name in enumerate(("Mae", "Accuracy")):
        assert f'id="plot-metric-{index}"' in page
        assert f"{name} of the evaluation set" in page


@pytest.mark.parametrize(("unit", "label"), [("tokens", "tokens/s"), ("", "counted/s")])
def test_speed_is_shown_in_what_the_loss_counts(runs, unit, label):
    """2,048 tokens in 0.1 s are 20,480 a second; samples/s stay beside it."""
    values = {"loss": 0.5}
    run = written(runs, "lm", [values, values], count=2048.0, unit=unit)
    summary = summarise(run)

    shown = {tile.label: tile.value for tile in quantities(summary)}
    rows = {row.name: row.values for row in compare([run, run], [summary, summary]).numbers}

    assert shown["samples/s"] == "640"
    assert shown[label] == "20,480"
    assert rows[f"{label}, median"] == [pytest.approx(20480)] * 2


@pytest.mark.parametrize("count", [64.0, 31.25])
def test_counts_that_are_samples_or_sums_of_weights_get_no_speed_of_their_own(runs, count):
    """Weights a second would say nothing."""
    run = written(runs, "w", [{"loss": 0.5}, {"loss": 0.5}], count=count)

    assert summarise(run).count_throughput is None
    assert [tile.label for tile in quantities(summarise(run)) if tile.label.endswith("/s")] == ["samples/s"]
