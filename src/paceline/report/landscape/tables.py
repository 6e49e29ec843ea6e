"""The numbers of every figure of the page as tables, and all numbers of one or several measurements in one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from paceline.report import words
from paceline.report.landscape.facts import NOT_CONVERGED, Fact, significant
from paceline.report.landscape.load import Landscape
from paceline.report.page.run_series import evenly
from paceline.report.page.run_tables import Table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

ROWS = 60
_KEPT = {True: "the same", False: "changes", None: ""}


def numbers_table(rows: Sequence[Fact]) -> Table:
    """All numbers of one measurement, with what stands beside each."""
    columns = ["Number", "Value", "With", "After rescaling"]
    cells = [[row.label, row.value, row.detail, _KEPT[row.kept]] for row in rows]
    return Table("Numbers, their errors, and whether rescaling layers against each other changes them", columns, cells)


def side_by_side(facts: Sequence[Sequence[Fact]], names: Sequence[str]) -> Table:
    """Numbers of several measurements: a row a number, a column a measurement, in the order of the longest.

    Args:
        facts: of each measurement.
        names: of each measurement.
    """
    labels: dict[str, str] = {}
    for rows in sorted(facts, key=len, reverse=True):
        for row in rows:
            labels.setdefault(row.key, row.label)
    by_key = [{row.key: row for row in rows} for rows in facts]
    cells = [[label, *(_cell(one.get(key)) for one in by_key)] for key, label in labels.items()]
    return Table("Numbers side by side", ["Number", *names], cells)


def _cell(row: Fact | None) -> str:
    if row is None:
        return "not measured"
    return f"{row.value} ({NOT_CONVERGED})" if NOT_CONVERGED in row.detail else row.value


def curve_table(caption: str, runs: Sequence[Landscape], names: Sequence[str], prefix: str) -> Table | None:
    """A slice along a line: one row a point; None where no run has it."""
    having = [(run, name) for run, name in zip(runs, names, strict=True) if f"{prefix}_t" in run.arrays]
    if not having:
        return None
    metrics = list(dict.fromkeys(name for run, _ in having for name in run.columns(prefix, ("t",))))
    rows = []
    for run, name in having:
        columns = run.columns(prefix, ("t",))
        where = run.arrays[f"{prefix}_t"]
        for index in evenly(len(where), 4 * ROWS):
            shown = [words.decimal(float(columns[m][index])) if m in columns else "" for m in metrics]
            rows.append([name, f"{where[index]:.4g}", *shown])
    return _one_or_many(Table(caption, ["Run", "t", *(m.capitalize() for m in metrics)], rows), runs)


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


def eigenvalue_table(runs: Sequence[Landscape], names: Sequence[str]) -> Table | None:
    """Eigenvalues with their residuals."""
    rows = []
    for run, name in zip(runs, names, strict=True):
        found = run.arrays.get("eigenvalues")
        if found is None:
            continue
        residuals = run.arrays.get("eigenvalues_residual")
        for index, value in enumerate(found):
            residual = "" if residuals is None else significant(float(residuals[index]), 2)
            rows.append([name, str(index + 1), significant(float(value), 6), residual])
    table = Table("Largest eigenvalues", ["Run", "Number", "Eigenvalue", "Residual"], rows)
    return _one_or_many(table, runs) if rows else None


def density_table(runs: Sequence[Landscape], names: Sequence[str]) -> Table | None:
    """The density of eigenvalues with its standard error over probes."""
    rows = []
    show: Callable[[float], str] = lambda value: significant(float(value), 3)  # noqa: E731  (used for each cell below)
    for run, name in zip(runs, names, strict=True):
        if "density_grid" not in run.arrays:
            continue
        grid, value = run.arrays["density_grid"], run.arrays["density_value"]
        error = run.arrays.get("density_error")
        for index in evenly(len(grid), ROWS):
            spread = "" if error is None else show(error[index])
            rows.append([name, show(grid[index]), show(value[index]), spread])
    table = Table("Density of eigenvalues", ["Run", "Eigenvalue", "Density", "Standard error"], rows)
    return _one_or_many(table, runs) if rows else None


def _one_or_many(table: Table, runs: Sequence[Landscape]) -> Table:
    if len(runs) > 1:
        return Table(table.caption, table.columns, table.rows, heads=2)
    return Table(table.caption, table.columns[1:], [row[1:] for row in table.rows])
