"""`paceline plan trends`: published training times, in words, a table and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from paceline.records.plan_results import Record, TrendsResult
from paceline.report import words
from paceline.report.page.figures import Axis, Figure, Series, Table, tabulate
from paceline.report.page.theme import COLOURS, look
from paceline.report.plan.numbers import step_time
from paceline.report.quantities import Quantity


def headline(result: TrendsResult) -> str:
    """What it is about: one line."""
    years = sorted({record.year for record in result.records})
    span = f" · {years[0]} to {years[-1]}" if len(years) > 1 else ""
    return f"{words.plural(len(result.records), 'published record')} of ResNet-50 on ImageNet{span}"


def quantities(result: TrendsResult) -> list[Quantity]:
    """The ends of the table."""
    if not result.records:
        return [Quantity.of("published records", "none", sure=False)]
    fastest = min(result.records, key=lambda one: one.minutes)
    slowest = max(result.records, key=lambda one: one.minutes)
    largest = max(result.records, key=lambda one: one.devices)
    found = [
        Quantity.of("fastest published", words.duration(60 * fastest.minutes), _where(fastest)),
        Quantity.of("slowest published", words.duration(60 * slowest.minutes), _where(slowest)),
        Quantity.of("most devices", words.integer(largest.devices), _where(largest)),
    ]
    known = [record for record in result.records if record.efficiency is not None and record.efficiency < 1]
    for name, of in (("best efficiency", max), ("least efficiency", min)):
        if known:
            record = of(known, key=lambda one: one.efficiency or 0.0)
            detail = f"{_where(record)}; strong scaling, beside the fewest devices of its series"
            found.append(Quantity.of(name, words.share(record.efficiency), detail))
    return found


def _where(record: Record) -> str:
    return f"{record.who} {record.year}, {record.devices:,} × {record.hardware}"


_COLUMNS: dict[str, Callable[[Record], str]] = {
    "Who": lambda record: record.who,
    "Year": lambda record: str(record.year),
    "Hardware": lambda record: record.hardware,
    "Devices": lambda record: words.integer(record.devices),
    "Time": lambda record: words.duration(60 * record.minutes),
    "Accuracy": lambda record: record.accuracy,
    "Efficiency": lambda record: "" if record.efficiency is None else words.share(record.efficiency),
    "A step": lambda record: "" if record.iteration_ms is None else step_time(record.iteration_ms / 1000),
    "Source": lambda record: record.source,
}
_SHORT = ("Who", "Year", "Devices", "Time", "Efficiency")
"""Columns beside a figure."""


def table(
    records: Sequence[Record], caption: str = "Published training times", names: Iterable[str] = _COLUMNS
) -> Table:
    """Records in the order of years, with these columns; all, with the source, unless told otherwise."""
    ordered = sorted(records, key=lambda one: (one.year, -one.minutes))
    return tabulate(caption, ordered, {name: _COLUMNS[name] for name in names})


def figures(result: TrendsResult) -> list[Figure]:
    """In the order of reading."""
    if not result.records:
        return []
    years, devices = Axis("year", "year"), Axis("devices", "count", log=True)
    minutes = Axis("training time, minutes", "count", log=True)
    known = [record for record in result.records if record.efficiency is not None]
    more = "Devices of different kinds and years: a point to the right is more of them, not more of the same."
    strong = (
        "Strong scaling: 1 where the time falls as the devices grow, beside the record of the same series with the "
        "fewest devices. Batch and epochs changed too, so it mixes machines with mathematics."
    )
    found = [
        _over("years", "Training time over years", "Each point is a published record.", result.records, years, minutes),
        _over("devices", "Training time over devices", more, result.records, devices, minutes),
    ]
    if known:
        efficiency = Axis("efficiency", "share", zero=True)
        found.append(_over("efficiency", "Efficiency over devices", strong, known, devices, efficiency))
    return found


def _over(place: str, heading: str, note: str, records: Sequence[Record], x: Axis, y: Axis) -> Figure:
    """Points, one look for each who; along x the year or the devices, along y the efficiency or the time."""
    series = []
    for number, who in enumerate(dict.fromkeys(record.who for record in records)):
        group = [record for record in records if record.who == who]
        style = look(number)
        drawn = Series(
            who,
            [float(one.year if x.form == "year" else one.devices) for one in group],
            [one.efficiency if y.form == "share" else one.minutes for one in group],
            kind="points",
            paint=f"run-{style.colour}",
            marker=style.marker,
            hollow=number >= COLOURS,
            said=[f"{one.devices:,} × {one.hardware}, {one.year}<br>accuracy {one.accuracy}" for one in group],
        )
        series.append(drawn)
    picture = "" if y.form == "share" else f"{heading.lower().replace(' ', '-')}.png"
    return Figure(f"plot-{place}", heading, note, x, y, series, table(records, heading, _SHORT), picture=picture)
