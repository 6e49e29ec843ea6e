"""The numbers of every figure of the page as tables, and all numbers of one or several measurements in one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from paceline.report import words
from paceline.report.landscape.measurement import Landscape
from paceline.report.landscape.quantities import NOT_CONVERGED, Measured, significant
from paceline.report.page.figures import Table, evenly, table_of_runs, tabulate

ROWS = 60
SLICES = {"line": "Along the first direction", "interpolation": "Between two runs"}
"""Captions of the slices along a line, by what their arrays begin with."""
_KEPT = {True: "the same", False: "changes", None: ""}


def numbers_table(rows: Sequence[Measured]) -> Table:
    """All numbers of one measurement, with what stands beside each."""
    columns: dict[str, Callable[[Measured], str]] = {
        "Number": lambda row: row.label,
        "Value": lambda row: row.value,
        "With": lambda row: row.detail,
        "After rescaling": lambda row: _KEPT[row.kept],
    }
    return tabulate(
        "Numbers, their errors, and whether rescaling layers against each other changes them", rows, columns
    )


def side_by_side(numbers: Sequence[Sequence[Measured]], names: Sequence[str]) -> Table:
    """Numbers of several measurements: a row a number, a column a measurement, in the order of the longest.

    Args:
        numbers: of each measurement.
        names: of each measurement.
    """
    labels: dict[str, str] = {}
    for rows in sorted(numbers, key=len, reverse=True):
        for row in rows:
            labels.setdefault(row.key, row.label)
    by_key = [{row.key: row for row in rows} for rows in numbers]
    cells = [[label, *(_cell(one.get(key)) for one in by_key)] for key, label in labels.items()]
    return Table("Numbers side by side", ["Number", *names], cells)


def _cell(row: Measured | None) -> str:
    if row is None:
        return "not measured"
    return f"{row.value} ({NOT_CONVERGED})" if NOT_CONVERGED in row.detail else row.value


def curve_table(caption: str, runs: Mapping[str, Landscape], prefix: str) -> Table | None:
    """A slice along a line: one row a point; None where no run has it."""
    having = {name: run for name, run in runs.items() if f"{prefix}_t" in run.arrays}
    if not having:
        return None
    metrics = list(dict.fromkeys(name for run in having.values() for name in run.columns(prefix, ("t",))))
    rows: dict[str, list[list[str]]] = {name: [] for name in runs}
    for name, run in having.items():
        columns = run.columns(prefix, ("t",))
        where = run.arrays[f"{prefix}_t"]
        for index in evenly(len(where), 4 * ROWS):
            shown = [words.decimal(float(columns[m][index])) if m in columns else "" for m in metrics]
            rows[name].append([f"{where[index]:.4g}", *shown])
    return table_of_runs(caption, ["t", *(m.capitalize() for m in metrics)], rows)


def surface_table(run: Landscape, name: str) -> Table:
    """A surface: rows along the second direction, columns along the first."""
    x, y = run.arrays["surface_x"], run.arrays["surface_y"]
    table = run.columns("surface", ("x", "y"))[name]
    rows = [[f"{y[i]:.3g}", *(words.decimal(float(table[i, j])) for j in range(len(x)))] for i in range(len(y))]
    return Table(f"{name.capitalize()}; first direction across, second down", ["", *(f"{v:.3g}" for v in x)], rows)


def path_table(run: Landscape) -> Table:
    """The checkpoints of a path."""
    step, xy = run.arrays["trajectory_step"], run.arrays["trajectory_xy"]
    columns = run.columns("trajectory", ("step", "xy", "variance"))
    rows = [
        [
            words.integer(step[index]),
            *(significant(float(value)) for value in xy[index]),
            *(words.decimal(float(column[index])) for column in columns.values()),
        ]
        for index in evenly(len(step), 4 * ROWS)
    ]
    return Table("Checkpoints", ["Step", "First axis", "Second axis", *(m.capitalize() for m in columns)], rows)


def eigenvalue_table(runs: Mapping[str, Landscape]) -> Table | None:
    """Eigenvalues with their residuals; None where no run has any."""
    rows: dict[str, list[list[str]]] = {name: [] for name in runs}
    for name, run in runs.items():
        residuals = run.arrays.get("eigenvalues_residual")
        for index, value in enumerate(run.arrays.get("eigenvalues", ())):
            residual = "" if residuals is None else significant(float(residuals[index]), 2)
            rows[name].append([str(index + 1), significant(float(value), 6), residual])
    if not any(rows.values()):
        return None
    return table_of_runs("Largest eigenvalues", ["Number", "Eigenvalue", "Residual"], rows)


def density_table(runs: Mapping[str, Landscape]) -> Table | None:
    """The density of eigenvalues with its standard error over probes; None where no run has one."""
    rows: dict[str, list[list[str]]] = {name: [] for name in runs}
    for name, run in runs.items():
        columns = [run.arrays.get(f"density_{what}") for what in ("grid", "value", "error")]
        for index in evenly(0 if columns[0] is None else len(columns[0]), ROWS):
            rows[name].append(["" if one is None else significant(float(one[index]), 3) for one in columns])
    if not any(rows.values()):
        return None
    return table_of_runs("Density of eigenvalues", ["Eigenvalue", "Density", "Standard error"], rows)
