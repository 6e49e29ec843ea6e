"""The numbers of every figure of the run page as tables: for screen readers, for print, and for copying them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from paceline.report import words
from paceline.report.noise import Noise
from paceline.report.page.figures import Table, evenly, table_of_runs
from paceline.report.run_record import Evaluations, Run

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Column = NDArray[np.float64]

EVALUATIONS = 400
"""Evaluations of a run in figures and tables."""
ROWS = 40
"""Rows a run in tables of long series."""


def metric_table(metric: str, runs: Mapping[str, Run]) -> Table:
    """Every evaluation of a metric, for each run."""

    def row(evaluations: Evaluations, index: int) -> list[str]:
        value, count = (float(one[metric][index]) for one in (evaluations.value, evaluations.count))
        return [
            words.integer(evaluations.step[index]),
            f"{evaluations.epoch[index]:.2f}",
            words.integer(evaluations.samples[index]),
            words.duration(evaluations.elapsed_s[index]),
            words.decimal(value),
            words.counted(metric, value, count),
        ]

    columns = ["Step", "Epoch", "Samples", "Time", metric.capitalize(), "Taken over"]
    return table_of_runs(f"{metric.capitalize()} of the evaluation set", columns, _of_evaluations(runs, {metric}, row))


def sharpness_table(runs: Mapping[str, Run]) -> Table | None:
    """The largest eigenvalue beside what the step size bears, for runs with --monitor sharpness; None without one."""

    def row(evaluations: Evaluations, index: int) -> list[str]:
        value, limit = (float(evaluations.value[name][index]) for name in ("sharpness", "stability_limit"))
        return [words.integer(evaluations.step[index]), f"{value:.4g}", f"{limit:.4g}", f"{value / limit:.3f}"]

    rows = _of_evaluations(runs, {"sharpness", "stability_limit"}, row)
    columns = ["Step", "Sharpness", "Limit of stability", "Ratio"]
    return table_of_runs("Largest eigenvalue of the Hessian", columns, rows) if any(rows.values()) else None


def _of_evaluations(
    runs: Mapping[str, Run], metrics: Iterable[str], row: Callable[[Evaluations, int], list[str]]
) -> dict[str, list[list[str]]]:
    """Rows of the runs that evaluated these metrics."""
    return {
        name: [row(run.evaluations, index) for index in evenly(len(run.evaluations.step), EVALUATIONS)]
        if run.evaluations.value.keys() >= set(metrics)
        else []
        for name, run in runs.items()
    }


def noise_table(runs: Mapping[str, Run]) -> Table | None:
    """The gradient noise scale in windows of each run that recorded norms; None without one."""
    rows = {name: _noise_rows(run.noise) if run.noise is not None else [] for name, run in runs.items()}
    columns = ["Steps", "Recorded", "Noise scale, samples", "Low (90 %)", "High (90 %)"]
    return table_of_runs("Gradient noise scale", columns, rows) if any(rows.values()) else None


def _noise_rows(noise: Noise) -> list[list[str]]:
    rows = []
    for index, value in enumerate(noise.value):
        whole = noise.data is not None and value >= noise.data
        rows.append(
            [
                f"{words.integer(noise.first[index])} to {words.integer(noise.step[index])}",
                words.integer(noise.recorded[index]),
                f">= the data set ({noise.data:,})" if whole else words.unbounded(value),
                words.unbounded(noise.low[index]),
                words.unbounded(noise.high[index]),
            ]
        )
    return rows


def series_table(what: str, column: str, show: Callable[[float], str], runs: Mapping[str, Run]) -> Table:
    """A column of the windows of each run, at most `ROWS` rows a run."""
    rows: dict[str, list[list[str]]] = {}
    for name, run in runs.items():
        windows = run.windows.merged(ROWS)
        values: Column = getattr(windows, column)
        columns = zip(windows.step, windows.samples, windows.elapsed_s, values, strict=True)
        rows[name] = [
            [words.integer(step), words.integer(samples), words.duration(elapsed_s), show(float(value))]
            for step, samples, elapsed_s, value in columns
        ]
    return table_of_runs(what, ["Up to step", "Samples", "Time", what], rows)
