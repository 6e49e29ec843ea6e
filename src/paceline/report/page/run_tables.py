"""The numbers of every figure as tables: for screen readers, for print, and for whoever wants to copy them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paceline.report import words
from paceline.report.load import Run
from paceline.report.page.run_series import EVALUATIONS, evenly, smooth

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Column = NDArray[np.float64]

ROWS = 40
"""Rows a run in tables of long series."""


@dataclass(frozen=True)
class Table:
    """A table as text; the first `heads` columns name the row."""

    caption: str
    columns: list[str]
    rows: list[list[str]]
    heads: int = 1


def metric_table(metric: str, runs: Sequence[Run], names: Sequence[str]) -> Table:
    """Every evaluation of a metric, for each run."""
    rows = []
    for run, name in zip(runs, names, strict=True):
        evaluations = run.evaluations
        if metric not in evaluations.value:
            continue
        for index in evenly(len(evaluations.step), EVALUATIONS):
            value = float(evaluations.value[metric][index])
            count = float(evaluations.count[metric][index])
            rows.append(
                [
                    name,
                    words.integer(evaluations.step[index]),
                    f"{evaluations.epoch[index]:.2f}",
                    words.integer(evaluations.samples[index]),
                    words.duration(evaluations.elapsed_s[index]),
                    words.decimal(value),
                    words.counted(metric, value, count),
                ]
            )
    columns = ["Run", "Step", "Epoch", "Samples", "Time", metric.capitalize(), "Taken over"]
    return _one_or_many(Table(f"{metric.capitalize()} of the evaluation set", columns, rows), names)


def sharpness_table(runs: Sequence[Run], names: Sequence[str]) -> Table | None:
    """The largest eigenvalue beside what the step size bears, for runs with --monitor sharpness; None without one."""
    rows = []
    for run, name in zip(runs, names, strict=True):
        evaluations = run.evaluations
        if not {"sharpness", "stability_limit"} <= evaluations.value.keys():
            continue
        for index in evenly(len(evaluations.step), EVALUATIONS):
            value = float(evaluations.value["sharpness"][index])
            limit = float(evaluations.value["stability_limit"][index])
            shown = [words.integer(evaluations.step[index]), f"{value:.4g}", f"{limit:.4g}", f"{value / limit:.3f}"]
            rows.append([name, *shown])
    if not rows:
        return None
    columns = ["Run", "Step", "Sharpness", "Limit of stability", "Ratio"]
    return _one_or_many(Table("Largest eigenvalue of the Hessian", columns, rows), names)


def noise_table(runs: Sequence[Run], names: Sequence[str]) -> Table | None:
    """The gradient noise scale in windows of each run that recorded norms; None without one."""
    rows = []
    for run, name in zip(runs, names, strict=True):
        noise = run.noise
        if noise is None:
            continue
        for index in range(len(noise.step)):
            whole = noise.data is not None and noise.value[index] >= noise.data
            rows.append(
                [
                    name,
                    f"{words.integer(noise.first[index])} to {words.integer(noise.step[index])}",
                    words.integer(noise.recorded[index]),
                    f">= the data set ({noise.data:,})" if whole else words.unbounded(noise.value[index]),
                    words.unbounded(noise.low[index]),
                    words.unbounded(noise.high[index]),
                ]
            )
    if not rows:
        return None
    columns = ["Run", "Steps", "Recorded", "Noise scale, samples", "Low (90 %)", "High (90 %)"]
    return _one_or_many(Table("Gradient noise scale", columns, rows), names)


def series_table(
    what: str, column: str, show: Callable[[float], str], runs: Sequence[Run], names: Sequence[str]
) -> Table:
    """A column of the windows of each run, at most `ROWS` rows a run."""
    rows = []
    for run, name in zip(runs, names, strict=True):
        windows = smooth(run.windows, ROWS)
        values: Column = getattr(windows, column)
        for index in range(len(windows.step)):
            position = [
                words.integer(windows.step[index]),
                words.integer(windows.samples[index]),
                words.duration(windows.elapsed_s[index]),
            ]
            rows.append([name, *position, show(float(values[index]))])
    return _one_or_many(Table(what, ["Run", "Up to step", "Samples", "Time", what], rows), names)


def _one_or_many(table: Table, names: Sequence[str]) -> Table:
    if len(names) > 1:
        return Table(table.caption, table.columns, table.rows, heads=2)
    return Table(table.caption, table.columns[1:], [row[1:] for row in table.rows])
