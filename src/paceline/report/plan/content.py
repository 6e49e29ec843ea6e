"""What a plan's page is made of, declared once: the page's script, its legends and the pictures for papers follow it.

A `Figure` says what is drawn, not how; `payload` makes it plain JSON values, with the ends that an interval lacks put
at the edge of the figure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from paceline.records.plan_results import Estimate
from paceline.report.page.run_tables import Table
from paceline.report.page.theme import look

Number = float | None
Form = Literal["number", "count", "share", "seconds", "bytes", "year", "name"]
Kind = Literal["line", "points", "band", "bars"]
DOTTED = "2 3"
DASHED = "7 4"
PATHS = {look(index).marker: look(index).path for index in range(6)}
"""Of each marker, as SVG in a box of 32 x 16."""


@dataclass(frozen=True)
class Axis:
    """One axis.

    Attributes:
        title: what is along it.
        form: how its numbers are written; `name` for categories.
        log: logarithmic.
        ticks: where a person would put them; empty leaves it to the drawing.
        zero: begins at 0.
    """

    title: str
    form: Form = "number"
    log: bool = False
    ticks: tuple[float, ...] = ()
    zero: bool = False


@dataclass(frozen=True)
class Series:
    """A line, points, a band without its line, or bars that are stacked onto those before.

    Attributes:
        name: in the legend; series of the same look share an entry.
        x, y: (n,) numbers or names; None leaves a gap.
        kind: line, points, band or bars.
        paint: a colour of the theme.
        dash: of the line, SVG's stroke-dasharray.
        marker: Plotly's name; empty for none.
        hollow: the marker is drawn open.
        wide: a line that lies faint and broad under another.
        low, high: (n,) ends of intervals along y: a band about a line, whiskers of points. None has no end.
        left, right: the same along x, whiskers only.
        said: (n,) what else is said of a point.
    """

    name: str
    x: Sequence[float | str]
    y: Sequence[Number]
    kind: Kind = "line"
    paint: str = "run-0"
    dash: str = ""
    marker: str = ""
    hollow: bool = False
    wide: bool = False
    low: Sequence[Number] = ()
    high: Sequence[Number] = ()
    left: Sequence[Number] = ()
    right: Sequence[Number] = ()
    said: Sequence[str] = ()


@dataclass(frozen=True)
class Mark:
    """A line across the figure, or a stretch of it.

    Attributes:
        axis: x for an upright line, y for a level one.
        at: where.
        label: what it is.
        to: other end of a stretch; None for a line.
    """

    axis: Literal["x", "y"]
    at: float
    label: str
    to: float | None = None


@dataclass(frozen=True)
class Figure:
    """A figure with its numbers.

    Attributes:
        id: of its place in the page.
        heading, note: what is seen, and how to read it.
        x, y: axes.
        series: what is drawn.
        table: its numbers.
        more: further ones.
        marks: lines across.
        picture: file name of a picture for papers; empty for none.
        shares: bars can be shown as shares of their sum.
    """

    id: str
    heading: str
    note: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    table: Table
    more: Table | None = None
    marks: Sequence[Mark] = ()
    picture: str = ""
    shares: bool = False


@dataclass(frozen=True)
class Cell:
    """A field of a heat table: what it says, how far from the best (0 to 1; None where that is not known)."""

    main: str
    more: str = ""
    away: float | None = None
    chosen: bool = False


@dataclass(frozen=True)
class Heat:
    """A table whose fields are tinted by how good they are.

    Attributes:
        caption: what is in it.
        corner: what heads rows and columns.
        columns: heads.
        rows: head and fields of each.
        note: how to read it.
    """

    caption: str
    corner: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Cell]]]
    note: str


@dataclass(frozen=True)
class Bar:
    """One bar of a list: its length is relative to the longest."""

    name: str
    value: str
    detail: str
    width: float


@dataclass(frozen=True)
class Fact:
    """One number of a plan.

    Attributes:
        label: its name, which says whether it is measured or predicted.
        value: the number, as people read it.
        detail: its interval, what it holds for, what else must be known.
        sure: False where it is beyond what was measured, has no end, or could not be had.
    """

    label: str
    value: str
    detail: str = ""
    sure: bool = True


@dataclass(frozen=True)
class Content:
    """All that a page shows of a plan besides what every plan has.

    Attributes:
        title, headline: of the page.
        facts: in the order of reading; the first five stand on top.
        heading, lead: above what answers.
        answers: tables of the numbers that answer.
        figures: in the order of reading.
        heat: a table whose fields are tinted, before the other answers; None where there is none.
        bars, bars_heading, bars_lead: a list of bars, where there is one.
    """

    title: str
    headline: str
    facts: Sequence[Fact]
    heading: str
    lead: str
    answers: Sequence[Table]
    figures: Sequence[Figure]
    heat: Heat | None = None
    bars: Sequence[Bar] = ()
    bars_heading: str = ""
    bars_lead: str = ""


def ends(estimates: Sequence[Estimate]) -> tuple[list[Number], list[Number]]:
    """Lower and upper ends."""
    return [one.low for one in estimates], [one.high for one in estimates]


def legend(figure: Figure) -> list[dict[str, Any]]:
    """Entries of a legend, as the page's template takes them."""
    entries: dict[str, dict[str, Any]] = {}
    for one in figure.series:
        entries.setdefault(
            one.name,
            {
                "name": one.name,
                "paint": one.paint,
                "kind": one.kind,
                "dash": one.dash,
                "path": PATHS.get(one.marker, ""),
                "hollow": one.hollow,
                "wide": one.wide,
            },
        )
    return list(entries.values())


def payload(figure: Figure) -> dict[str, Any]:
    """What a drawing needs, as plain JSON values; an end that an interval lacks lies at the edge of the figure."""
    left, right = _edges(figure.x, [one for series in figure.series for one in _numbers(series.x)])
    everything = [n for s in figure.series for part in (s.y, s.low, s.high) for n in _numbers(part)]
    bottom, top = _edges(figure.y, everything)
    return {
        "id": figure.id,
        "x": _axis(figure.x),
        "y": _axis(figure.y),
        "shares": figure.shares,
        "series": [
            {
                "name": one.name,
                "kind": one.kind,
                "x": [_plain(value) for value in one.x],
                "y": [_plain(value) for value in one.y],
                "paint": one.paint,
                "dash": one.dash,
                "marker": one.marker,
                "hollow": one.hollow,
                "wide": one.wide,
                "low": _closed(one.low, bottom, figure.y.log),
                "high": _closed(one.high, top, figure.y.log),
                "left": _closed(one.left, left, figure.x.log),
                "right": _closed(one.right, right, figure.x.log),
                "said": list(one.said),
            }
            for one in figure.series
        ],
        "marks": [{"axis": m.axis, "at": m.at, "label": m.label, "to": m.to} for m in figure.marks],
    }


def _axis(axis: Axis) -> dict[str, Any]:
    return {"title": axis.title, "form": axis.form, "log": axis.log, "ticks": list(axis.ticks), "zero": axis.zero}


def _numbers(values: Sequence[Any]) -> Iterator[float]:
    return (value for value in values if isinstance(value, int | float) and math.isfinite(value))


def _edges(axis: Axis, numbers: Sequence[float]) -> tuple[float, float]:
    """Ends of what is drawn: a little beyond every number."""
    usable = [number for number in numbers if not axis.log or number > 0]
    if not usable:
        return 0.0, 0.0
    low, high = min(usable), max(usable)
    if axis.log:
        return low / 1.5, high * 1.5
    room = 0.1 * ((high - low) or abs(high) or 1.0)
    return low - room, high + room


def _closed(values: Sequence[Number], edge: float, log: bool) -> list[Number]:
    return [_plain(edge if value is None or (log and value <= 0) else value) for value in values]


def _plain(value: float | str | None) -> Any:
    if isinstance(value, str) or value is None:
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None
