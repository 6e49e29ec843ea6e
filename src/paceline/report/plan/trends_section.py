"""`paceline plan trends`: published training times, in words, a table and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from paceline.records.plan_results import Record, TrendsResult
from paceline.report import words
from paceline.report.page.figures import Axis, Figure, Series, Table, tabulate
from paceline.report.page.theme import look
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
    minutes = Axis("training time, minutes", "count", log=True)
    found = [
        Figure(
            "plot-years",
            "Training time over years",
            "Each point is a published record.",
            Axis("year", "year"),
            minutes,
            _series(result.records, lambda record: float(record.year), lambda record: record.minutes),
            table(result.records, "Training time over years", _SHORT),
            picture="training-time-over-years.png",
        ),
        Figure(
            "plot-devices",
            "Training time over devices",
            "Devices of different kinds and years: a point to the right is more of them, not more of the same.",
            Axis("devices", "count", log=True),
            minutes,
            _series(result.records, lambda record: float(record.devices), lambda record: record.minutes),
            table(result.records, "Training time over devices", _SHORT),
            picture="training-time-over-devices.png",
        ),
    ]
    known = [record for record in result.records if record.efficiency is not None]
    if known:
        found.append(
            Figure(
                "plot-efficiency",
                "Efficiency over devices",
                "Strong scaling: 1 where the time falls as the devices grow, beside the record of the same series with "
                "the fewest devices. Batch and epochs changed too, so it mixes machines with mathematics.",
                Axis("devices", "count", log=True),
                Axis("efficiency", "share", zero=True),
                _series(known, lambda record: float(record.devices), lambda record: record.efficiency),
                table(known, "Efficiency over devices", _SHORT),
            )
        )
    return found


def _series(records: list[Record], x: Callable[[Record], float], y: Callable[[Record], float | None]) -> list[Series]:
    """Points, one look for each who."""
    found = []
    for number, who in enumerate(dict.fromkeys(record.who for record in records)):
        group = [record for record in records if record.who == who]
        style = look(number)
        found.append(
            Series(
                who,
                [x(record) for record in group],
                [y(record) for record in group],
                kind="points",
                paint=f"run-{style.colour}",
                marker=style.marker,
                hollow=number >= 6,
                said=[
                    f"{record.devices:,} × {record.hardware}, {record.year}<br>accuracy {record.accuracy}"
                    for record in group
                ],
            )
        )
    return found
