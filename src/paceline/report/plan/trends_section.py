"""`paceline plan trends`: published training times, in words, a table and figures."""

from __future__ import annotations

from collections.abc import Callable

from paceline.records.plan_results import Record, TrendsResult
from paceline.report import words
from paceline.report.page.run_tables import Table
from paceline.report.page.theme import look
from paceline.report.plan.content import Axis, Fact, Figure, Series
from paceline.report.plan.numbers import step_time


def headline(result: TrendsResult) -> str:
    """What it is about: one line."""
    years = sorted({record.year for record in result.records})
    span = f" · {years[0]} to {years[-1]}" if len(years) > 1 else ""
    return f"{words.plural(len(result.records), 'published record')} of ResNet-50 on ImageNet{span}"


def facts(result: TrendsResult) -> list[Fact]:
    """The ends of the table."""
    if not result.records:
        return [Fact("published records", "none", sure=False)]
    fastest = min(result.records, key=lambda one: one.minutes)
    slowest = max(result.records, key=lambda one: one.minutes)
    largest = max(result.records, key=lambda one: one.devices)
    found = [
        Fact("fastest published", words.duration(60 * fastest.minutes), _where(fastest)),
        Fact("slowest published", words.duration(60 * slowest.minutes), _where(slowest)),
        Fact("most devices", words.integer(largest.devices), _where(largest)),
    ]
    known = [record for record in result.records if record.efficiency is not None and record.efficiency < 1]
    for name, of in (("best efficiency", max), ("least efficiency", min)):
        if known:
            record = of(known, key=lambda one: one.efficiency or 0.0)
            detail = f"{_where(record)}; strong scaling, beside the fewest devices of its series"
            found.append(Fact(name, words.share(record.efficiency), detail))
    return found


def _where(record: Record) -> str:
    return f"{record.who} {record.year}, {record.devices:,} × {record.hardware}"


def table(result: TrendsResult) -> Table:
    """Every record with its source."""
    columns = ["Who", "Year", "Hardware", "Devices", "Time", "Accuracy", "Efficiency", "A step", "Source"]
    cells = [
        [
            record.who,
            str(record.year),
            record.hardware,
            words.integer(record.devices),
            words.duration(60 * record.minutes),
            record.accuracy,
            "" if record.efficiency is None else words.share(record.efficiency),
            "" if record.iteration_ms is None else step_time(record.iteration_ms / 1000),
            record.source,
        ]
        for record in sorted(result.records, key=lambda one: (one.year, -one.minutes))
    ]
    return Table("Published training times", columns, cells)


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
            _short(result, "Training time over years"),
            picture="training-time-over-years.png",
        ),
        Figure(
            "plot-devices",
            "Training time over devices",
            "Devices of different kinds and years: a point to the right is more of them, not more of the same.",
            Axis("devices", "count", log=True),
            minutes,
            _series(result.records, lambda record: float(record.devices), lambda record: record.minutes),
            _short(result, "Training time over devices"),
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
                _short(TrendsResult(records=known, notes=[]), "Efficiency over devices"),
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


def _short(result: TrendsResult, caption: str) -> Table:
    cells = [
        [
            record.who,
            str(record.year),
            words.integer(record.devices),
            words.duration(60 * record.minutes),
            "" if record.efficiency is None else words.share(record.efficiency),
        ]
        for record in sorted(result.records, key=lambda one: (one.year, -one.minutes))
    ]
    return Table(caption, ["Who", "Year", "Devices", "Time", "Efficiency"], cells)
