"""`paceline plan data` in words and tables: facts, the rows that answer, what targets need."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from paceline.records.plan_results import DataResult, DataRow, Estimate, Needed
from paceline.report import words
from paceline.report.page.figures import Table, tabulate
from paceline.report.plan.evidence import held_out_quantity
from paceline.report.plan.numbers import about, interval_of, percent, reach, reach_in_short, value_of
from paceline.report.quantities import Quantity

FAR = 4.0
"""Samples over the most that were measured, beyond which a prediction rests on the form of the curve; a test holds it
to that of the fit."""


def name_of(result: DataResult) -> str:
    """What is called error: `1 - accuracy`, or the metric itself."""
    return "1 − accuracy" if result.metric in ("accuracy", "error") else result.metric


def headline(result: DataResult) -> str:
    """What it was fitted to: one line."""
    sizes = sorted({point.samples for point in result.points})
    seeds = len({point.seed for point in result.points})
    parts = [f"error: {name_of(result)} · {words.plural(len(result.points), 'measured run')}"]
    if sizes:
        parts.append(f"{sizes[0]:,} to {sizes[-1]:,} samples, {words.plural(seeds, 'seed')}")
    return " · ".join(parts)


def quantities(result: DataResult) -> list[Quantity]:
    """Every number, in the order of reading."""
    found = [one for needed in result.needed for one in _needed(result, needed)]
    found += _farthest(result)
    found.append(held_out_quantity(result.evidence))
    meaning = (
        f"fitted{_ends(result, result.exponent_interval)}; the error above its floor falls as samples to minus this"
    )
    found.append(Quantity.of("exponent", about(result.exponent), meaning))
    floor = "fitted; what no number of samples gets below" if result.floor else "the fit sees none yet"
    found.append(Quantity.of("floor", about(result.floor), f"{floor}{_ends(result, result.floor_interval)}"))
    found.append(Quantity.of("noise", words.share(result.noise), "measured; how far runs lie from the curve"))
    failed = sum(point.error is None for point in result.points)
    if failed:
        found.append(Quantity.of("runs that diverged", words.integer(failed), "left out of the fit", sure=False))
    if result.forward_flop is not None:
        found.append(Quantity.of("computing of one sample", f"{about(result.forward_flop)} FLOP", "forward, counted"))
    return found


def _ends(result: DataResult, of: Estimate | None) -> str:
    return "" if of is None else f"; {percent(result.evidence.confidence)} interval {interval_of(of)}"


def _needed(result: DataResult, needed: Needed) -> Iterator[Quantity]:
    parts = [f"{percent(result.evidence.confidence)} interval {interval_of(needed.samples)}"]
    for name, of in _costs_of(needed).items():
        if of is not None and of.value is not None:
            parts.append(f"{name if name == 'FLOP' else name.lower()} {both(of)}")
    most = largest(result)
    far = needed.samples.value is None or needed.samples.value > FAR * most
    yield Quantity.of(
        f"predicted samples for {error_of(needed.error)}", value_of(needed.samples), "; ".join(parts), sure=not far
    )


def _costs_of(needed: Needed) -> dict[str, Estimate | None]:
    return {"Device-hours": needed.device_hours, "Cost": needed.cost, "FLOP": needed.flop}


def both(of: Estimate | None) -> str:
    """A value with its interval: `27,900 (22,000 to 39,000)`."""
    if of is None or (of.value is None and of.low is None):
        return value_of(of)
    return f"{value_of(of)} ({interval_of(of)})"


def error_of(value: float) -> str:
    """`error 0.08`."""
    return f"error {value:.4g}"


def _farthest(result: DataResult) -> Iterator[Quantity]:
    """The prediction farthest beyond the runs that is not too far."""
    rows = [row for row in result.rows if 1 < row.beyond <= FAR]
    if rows:
        row = max(rows, key=lambda one: one.samples)
        interval = f"{percent(result.evidence.confidence)} interval {interval_of(row.error, words.decimal)}"
        detail = f"{interval}; {reach(row.beyond, FAR)}"
        yield Quantity.of(f"predicted error at {row.samples:,} samples", value_of(row.error, words.decimal), detail)


def largest(result: DataResult) -> float:
    """The most samples that went into the fit, which is not all that were tried where runs were left out; 0 without."""
    fitted = [row.samples for row in result.rows if row.beyond <= 1]
    ended = [point.samples for point in result.points if point.error is not None]
    return float(max(fitted or ended, default=0))


def table(result: DataResult) -> Table:
    """The error at each number of samples, and what a training on them costs; columns of what is not known left out."""
    rows = sorted(result.rows, key=lambda row: row.samples)
    columns: dict[str, Callable[[DataRow], str]] = {
        "Samples": lambda row: words.integer(row.samples),
        "Measured error": lambda row: "" if row.measured is None else words.decimal(row.measured),
        "Predicted error": lambda row: value_of(row.error, words.decimal),
        f"{percent(result.evidence.confidence)} interval": lambda row: interval_of(row.error, words.decimal),
    }
    costs: dict[str, Callable[[DataRow], str]] = {
        "PF/s-days": lambda row: "" if row.pfs_days is None else about(row.pfs_days),
        "Device-hours": lambda row: "" if row.device_hours is None else f"{about(row.device_hours)} h",
        "Cost": lambda row: "" if row.cost is None else about(row.cost),
    }
    columns |= {name: show for name, show in costs.items() if any(show(row) for row in rows)}
    columns["Beyond the runs"] = lambda row: reach_in_short(row.beyond, FAR)
    return tabulate("Error and cost by training samples", rows, columns)


def needed_table(result: DataResult) -> Table | None:
    """What each target needs; None without targets."""
    if not result.needed:
        return None
    interval = f"{percent(result.evidence.confidence)} interval"
    columns: dict[str, Callable[[Needed], str]] = {
        "Target": lambda needed: error_of(needed.error),
        "Samples": lambda needed: value_of(needed.samples),
        interval: lambda needed: interval_of(needed.samples),
    }
    for name in _costs_of(result.needed[0]):
        if any(_costs_of(needed)[name] is not None for needed in result.needed):
            columns[f"{name} ({interval})"] = functools.partial(_cost, name)
    return tabulate("What targets need, predicted", result.needed, columns)


def _cost(name: str, needed: Needed) -> str:
    return both(_costs_of(needed)[name])
