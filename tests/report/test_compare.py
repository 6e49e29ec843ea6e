"""Several runs side by side."""

from __future__ import annotations

import msgspec
import pytest

from paceline.report.comparison import compare
from paceline.report.run_record import load_run
from paceline.report.summary import summarise


def side_by_side(*paths):
    """The comparison of these run directories."""
    loaded = [load_run(path) for path in paths]
    return compare(loaded, [summarise(run) for run in loaded])


def test_only_settings_that_differ_are_listed(runs):
    """The learning rate and a nested setting differ; everything that is equal stays out."""
    base = runs.info("a")
    other = msgspec.structs.replace(
        base, name="b", config=base.config | {"lr": 0.2, "optimizer": {"name": "sgd", "nesterov": True}}
    )

    result = side_by_side(runs.plain("a", info=base), runs.plain("b", info=other))

    assert {row.name: row.values for row in result.settings} == {
        "lr": ["0.1", "0.2"],
        "optimizer.nesterov": ["not set", "on"],
    }


def test_world_batch_precision_and_versions_are_settings(runs):
    """What the machine and the installation gave is compared like what was typed."""
    base = runs.info("a")
    other = runs.info("a", world=4, precision="bf16", versions=base.versions | {"torch": "2.9.0"})

    result = side_by_side(runs.plain("a", info=base), runs.plain("b", info=other))

    rows = {row.name: row.values for row in result.settings}
    assert rows["batch.world"] == ["2", "4"]
    assert rows["batch.per_rank"] == ["32", "16"]
    assert rows["precision used"] == ["fp32", "bf16"]
    assert rows["version.torch"] == ["2.14.1", "2.9.0"]


def test_where_a_run_went_is_no_difference(runs):
    """Two runs of one configuration in two directories differ in nothing."""
    base = runs.info("a")
    configs = [base.config | {"run_dir": place} for place in ("here", "there")]
    infos = [msgspec.structs.replace(base, config=config) for config in configs]

    result = side_by_side(runs.plain("a", info=infos[0]), runs.plain("b", info=infos[1]))

    assert result.settings == []
    assert result.runs == ["a", "b"]


def test_ratios_are_to_the_first_run(runs):
    """A run at half the pace takes twice the time at half the samples a second."""
    result = side_by_side(runs.plain("fast"), runs.plain("slow", pace=2.0))

    numbers = {row.name: row for row in result.numbers}
    assert numbers["training time"].values == [3.25, 6.5]
    assert numbers["training time"].ratios == [1.0, 2.0]
    assert numbers["samples/s, median"].ratios == pytest.approx([1.0, 0.5])
    assert numbers["final accuracy"].ratios == [1.0, 1.0]


def test_a_number_that_one_run_lacks_has_no_ratio(runs):
    """Not observed is shown as that, on either side."""
    result = side_by_side(runs.write("dead", [runs.start()]), runs.plain())

    numbers = {row.name: row for row in result.numbers}
    assert numbers["training time"].shown == ["not observed", "3.25 s"]
    assert numbers["training time"].ratios == [None, None]


def test_runs_of_one_name_are_told_apart(runs):
    """Equal names give way to the directories'."""
    info = runs.info("digits")

    result = side_by_side(runs.plain("first", info=info), runs.plain("second", info=info))

    assert result.runs == ["first", "second"]
