"""The figures of `paceline plan data`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from paceline.records.plan_results import CurvePoint, DataResult, DataRow, HeldOut
from paceline.report import words
from paceline.report.page.figures import DASHED, Axis, Figure, Mark, Series, Table, ends, open_points, tabulate
from paceline.report.plan.data_section import FAR, largest, name_of, needed_table, table
from paceline.report.plan.numbers import about, percent, value_of

_FINE = 80
_DRAWN = 100.0
"""Times the largest size that the curve is drawn to for a target."""


def figures(result: DataResult) -> list[Figure]:
    """In the order of reading."""
    found = [_curve(result)]
    cost = _cost(result)
    return [*found, cost] if cost is not None else found


def law(result: DataResult, samples: float) -> float:
    """The fitted curve: floor + scale * samples^-exponent."""
    return result.floor + result.scale * math.exp(-result.exponent * math.log(samples))


def law_in_words(result: DataResult) -> str:
    """The curve with its numbers."""
    start = f"{about(result.floor)} + " if result.floor else ""
    return f"{start}{about(result.scale)} · samples^−{about(result.exponent)}"


def _curve(result: DataResult) -> Figure:
    most = largest(result)
    rows = sorted(result.rows, key=lambda row: row.samples)
    series = [*_band(result, rows), *_law(result, rows, most)]
    points = [point for point in result.points if point.error is not None and point.error > 0]  # logarithmic axis
    series.append(
        Series(
            "measured runs",
            [point.samples for point in points],
            [point.error for point in points],
            kind="points",
            paint="run-1",
            marker="circle",
            said=[f"seed {point.seed}, {point.steps:,} steps<br>{point.run}" for point in points],
        )
    )
    series += _held_out(result)
    reached = [one for one in result.needed if one.samples.value is not None and one.samples.value <= _DRAWN * most]
    if reached:
        at = [one.samples.value for one in reached if one.samples.value is not None]
        errors, reach = [one.error for one in reached], ends([one.samples for one in reached])
        name = "samples that a target needs, predicted"
        series.append(open_points(name, at, errors, "run-2", "square", reach=reach))
    return Figure(
        "plot-learning",
        "Error over training samples",
        f"Fitted: error = {law_in_words(result)}. Solid up to the most samples that were measured, dashed beyond "
        "(extrapolation); faint: its interval." + _not_drawn(result),
        Axis("training samples", "count", log=True),
        Axis(f"error: {name_of(result)}", "number", log=True),
        series,
        runs_table(result),
        needed_table(result),
        _marks(result, rows, most),
        picture="learning-curve.png",
    )


def _band(result: DataResult, rows: Sequence[DataRow]) -> list[Series]:
    """The interval at the rows of the table, about what is predicted there."""
    if len(rows) < 2:
        return []
    low, high = ends([row.error for row in rows])
    at, values = [row.samples for row in rows], [row.error.value for row in rows]
    name = f"{percent(result.evidence.confidence)} interval of the prediction"
    return [Series(name, at, values, kind="band", low=low, high=high)]


def _law(result: DataResult, rows: Sequence[DataRow], most: float) -> list[Series]:
    sizes = [point.samples for point in result.points] + [row.samples for row in rows]
    wanted = [one.samples.value for one in result.needed if one.samples.value is not None]
    if not sizes:
        return []
    end = max(*sizes, *(min(value, _DRAWN * most) for value in wanted), most)
    found = []
    for name, first, last, dash in (("fitted", min(sizes), most, ""), ("extrapolation", most, end, DASHED)):
        if 0 < first < last:
            at = [first * (last / first) ** (step / _FINE) for step in range(_FINE + 1)]
            found.append(Series(name, at, [law(result, size) for size in at], dash=dash))
    return found


def _held_out(result: DataResult) -> list[Series]:
    placed = [(size, row) for row in result.evidence.held_out if (size := _size_of(result, row)) is not None]
    if not placed:
        return []
    at, errors = [size for size, _ in placed], [row.predicted for _, row in placed]
    said = [f"{row.what}<br>measured {words.decimal(row.measured)}" for _, row in placed]
    return [open_points("predicted by a fit without that size", at, errors, "run-3", "diamond", said=said)]


def _size_of(result: DataResult, row: HeldOut) -> float | None:
    """At how many samples a held-out point lies: where the mean of the runs is what it says was measured."""
    for size in sorted({point.samples for point in result.points}, reverse=True):
        errors = [p.error for p in result.points if p.samples == size and p.error is not None]
        if errors and math.isclose(sum(errors) / len(errors), row.measured, rel_tol=1e-6):
            return float(size)
    return largest(result) if len(result.evidence.held_out) == 1 and result.points else None


def _marks(result: DataResult, rows: Sequence[DataRow], most: float) -> list[Mark]:
    marks = [Mark("y", one.error, f"target {one.error:.4g}") for one in result.needed]
    if rows and rows[-1].samples > FAR * most > 0:
        marks.append(Mark("x", FAR * most, f"{FAR:g} × the most measured"))
    return marks


def _not_drawn(result: DataResult) -> str:
    lost = [point for point in result.points if point.error is None]
    none = [point for point in result.points if point.error is not None and point.error <= 0]
    parts = [f"{words.plural(len(lost), 'run')} that diverged"] if lost else []
    parts += [f"{words.plural(len(none), 'run')} without an error"] if none else []
    return f" Not drawn: {' and '.join(parts)}." if parts else ""


def runs_table(result: DataResult) -> Table:
    """Every run of the learning curve."""
    columns: dict[str, Callable[[CurvePoint], str]] = {
        "Samples": lambda point: words.integer(point.samples),
        "Seed": lambda point: str(point.seed),
        "Steps": lambda point: words.integer(point.steps),
        "Measured error": lambda point: "diverged" if point.error is None else words.decimal(point.error),
        "Fitted error": lambda point: words.decimal(law(result, point.samples)),
        "Run": lambda point: point.run,
    }
    points = sorted(result.points, key=lambda one: (one.samples, one.seed))
    return tabulate("Measured runs", points, columns, heads=2)


def _known(rows: Sequence[DataRow], device: str) -> tuple[str, str, list[tuple[DataRow, float]]] | None:
    """Heading, axis and values of the dearest word that is known: money, else hours, else operations."""
    for field, heading, title in (
        ("cost", "Cost over training samples", f"cost{device}"),
        ("device_hours", "Device-hours over training samples", f"device-hours{device}"),
        ("pfs_days", "Computing over training samples", "PF/s-days"),
    ):
        known = [(row, float(getattr(row, field))) for row in rows if getattr(row, field) is not None]
        if known:
            return heading, title, known
    return None


def _cost(result: DataResult) -> Figure | None:
    rows = sorted(result.rows, key=lambda row: row.samples)
    found = _known(rows, f" of {result.device}" if result.device else "")
    if found is None:
        return None
    heading, title, known = found
    within = sum(row.beyond <= 1 for row, _ in known)
    series = []
    for called, part, dash in (
        ("computed", known[:within], ""),
        ("computed, for more samples than any run had", known[max(0, within - 1) :], DASHED),
    ):
        if len(part) > 1 or (part and not dash):
            at, values = [row.samples for row, _ in part], [value for _, value in part]
            said = [f"predicted error {value_of(row.error, words.decimal)}" for row, _ in part]
            series.append(Series(called, at, values, marker="circle", dash=dash, said=said))
    marks = [
        Mark("x", one.samples.value, f"target {one.error:.4g}")
        for one in result.needed
        if one.samples.value is not None and rows[0].samples <= one.samples.value <= rows[-1].samples
    ]
    return Figure(
        "plot-cost",
        heading,
        "Of one training. Computed from the counted operations of the model, not measured.",
        Axis("training samples", "count", log=True),
        Axis(title, "count", log=True),
        series,
        table(result),
        marks=marks,
    )
