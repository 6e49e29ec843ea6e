"""Figures and tables of every page, declared once: scripts, legends and pictures for papers follow what stands here.

A `Figure` says what is drawn, not how; `payload` makes it plain JSON values, with the ends that an interval lacks put
at the edge of the figure. A `Table` holds text.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import msgspec

from paceline.records.plan_results import Estimate
from paceline.report.page.theme import look

Item = TypeVar("Item")
Number = float | None
Form = Literal["number", "count", "share", "seconds", "bytes", "year", "name"]
Kind = Literal["line", "points", "band", "bars", "map"]
DOTTED = "2 3"
DASHED = "7 4"
PATHS = {look(index).marker: look(index).path for index in range(6)}
"""Of each marker, as SVG in a box of 32 x 16."""


@dataclass(frozen=True)
class Table:
    """A table as text; the first `heads` columns name the row."""

    caption: str
    columns: list[str]
    rows: list[list[str]]
    heads: int = 1


def tabulate(
    caption: str, items: Iterable[Item], columns: Mapping[str, Callable[[Item], str]], heads: int = 1
) -> Table:
    """A row an item; each column is its name and what it says of an item."""
    rows = [[show(item) for show in columns.values()] for item in items]
    return Table(caption, list(columns), rows, heads)


def table_of_runs(caption: str, columns: Sequence[str], rows: dict[str, list[list[str]]]) -> Table:
    """Rows of one or several runs.

    Args:
        caption: what is in it.
        columns: names, without that of the run.
        rows: of each run by its name, which heads its rows where there are several runs.
    """
    if len(rows) == 1:
        return Table(caption, list(columns), next(iter(rows.values())))
    return Table(caption, ["Run", *columns], [[name, *row] for name, own in rows.items() for row in own], heads=2)


@dataclass(frozen=True)
class Choice:
    """A value that a switch of the page chooses.

    Attributes:
        by: name of the switch.
        of: the value for each of its buttons; the first where the page has no such switch. What has none is not drawn.
    """

    by: str
    of: Mapping[str, Any]


@dataclass(frozen=True)
class Axis:
    """One axis.

    Attributes:
        title: what is along it.
        form: how its numbers are written; `name` for categories.
        log: logarithmic.
        ticks: where a person would put them; empty leaves it to the drawing.
        zero: begins at 0, unless it is logarithmic.
        tickformat: of its numbers, d3's; empty for that of its form.
        dtick: from tick to tick, as Plotly takes it; None leaves it to the drawing.
        range: its ends, of a logarithmic axis their logarithms; None leaves them to the drawing.
    """

    title: str
    form: Form = "number"
    log: bool | Choice = False
    ticks: tuple[float, ...] = ()
    zero: bool = False
    tickformat: str = ""
    dtick: float | None = None
    range: tuple[float, float] | None = None


@dataclass(frozen=True)
class Series:
    """A line, points, a band without its line, or bars that are stacked onto those before.

    Attributes:
        name: in the legend; series of the same look share an entry.
        x, y: (n,) numbers or names; None leaves a gap.
        kind: line, points, band, bars, or a map: a row of colored columns for each name in y.
        paint: a colour of the theme.
        dash: of the line, SVG's stroke-dasharray.
        marker: Plotly's name; empty for none.
        hollow: the marker is drawn open.
        width, alpha: of the line.
        size: of the marker; 0 leaves it to the drawing.
        sparse: so many markers at most; 0 for one at each point.
        z: of a map, for each y (n,) numbers: 0 is pale, 1 is strong, and what is above has a color of its own.
        low, high: (n,) ends of intervals along y: a band about a line, whiskers of points and bars. None has no end.
        whiskers: a line has whiskers instead of a band.
        left, right: the same along x, whiskers only.
        said: (n,) what else is said of a point.
        hover: Plotly's template of what is said of a point, in which `said` is `customdata`; empty for the numbers with
            the titles of their axes and `said` below, None for nothing.
    """

    name: str
    x: Sequence[float | str] | Choice
    y: Sequence[Number] | Sequence[str] | Choice
    kind: Kind = "line"
    paint: str = "run-0"
    dash: str = ""
    marker: str = ""
    hollow: bool = False
    width: float = 2.0
    alpha: float = 1.0
    size: int = 0
    sparse: int = 0
    low: Sequence[Number] = ()
    high: Sequence[Number] = ()
    left: Sequence[Number] = ()
    right: Sequence[Number] = ()
    whiskers: bool = False
    said: Sequence[str | Number] = ()
    hover: str | Choice | None = ""
    z: Sequence[Sequence[Number]] = ()

    @property
    def wide(self) -> bool:
        """Whether a line lies broad under another."""
        return self.width > 4

    @property
    def path(self) -> str:
        """The marker as SVG; empty for none."""
        return PATHS.get(self.marker, "")


@dataclass(frozen=True)
class Mark:
    """A line across the figure, or a stretch of it.

    Attributes:
        axis: x for an upright line, y for a level one.
        at: where.
        label: what it is.
        to: other end of a stretch; None for a line.
        stretches: the figure reaches as far, also where no point is.
    """

    axis: Literal["x", "y"]
    at: float
    label: str
    to: float | None = None
    stretches: bool = True


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
        grouped: bars of several series stand side by side.
        low: needs little height.
    """

    id: str
    heading: str
    note: str
    x: Axis | Choice
    y: Axis
    series: Sequence[Series]
    table: Table
    more: Table | None = None
    marks: Sequence[Mark] = ()
    picture: str = ""
    shares: bool = False
    grouped: bool = False
    low: bool = False

    @property
    def legend(self) -> list[Series]:
        """The first series of each name."""
        entries: dict[str, Series] = {}
        for one in self.series:
            entries.setdefault(one.name, one)
        return list(entries.values())


def ends(estimates: Sequence[Estimate]) -> tuple[list[Number], list[Number]]:
    """Lower and upper ends."""
    return [one.low for one in estimates], [one.high for one in estimates]


def open_points(
    name: str,
    x: Sequence[float],
    y: Sequence[Number],
    paint: str,
    marker: str,
    *,
    said: Sequence[str] = (),
    reach: tuple[Sequence[Number], Sequence[Number]] = ((), ()),
) -> Series:
    """Single predictions: open points, where measured ones are filled.

    Args:
        name, x, y, paint, marker, said: as in `Series`.
        reach: (n,) lower and (n,) upper ends of their intervals along x; empty without.
    """
    left, right = reach
    return Series(name, x, y, kind="points", paint=paint, marker=marker, hollow=True, said=said, left=left, right=right)


def payload(figure: Figure) -> dict[str, Any]:
    """What a drawing needs, as plain JSON values; an end that an interval lacks lies at the edge of the figure."""
    across = figure.x if isinstance(figure.x, Axis) else Axis("")
    left, right = _edges(across, [one for series in figure.series for one in _numbers(series.x)])
    everything = [n for s in figure.series for part in (s.y, s.low, s.high) for n in _numbers(part)]
    bottom, top = _edges(figure.y, everything)
    series = [
        dataclasses.replace(
            one,
            x=_column(one.x),
            y=_column(one.y),
            low=_closed(one.low, bottom, figure.y),
            high=_closed(one.high, top, figure.y),
            left=_closed(one.left, left, across),
            right=_closed(one.right, right, across),
        )
        for one in figure.series
    ]
    built = msgspec.to_builtins(dataclasses.replace(figure, series=series))
    return {name: built[name] for name in ("id", "x", "y", "shares", "grouped", "series", "marks")}


def _column(column: Any) -> Any:
    if isinstance(column, Choice):
        return Choice(column.by, {name: values(one) for name, one in column.of.items()})
    return values(column)


def _numbers(column: Sequence[Any] | Choice) -> Iterator[float]:
    """Those that can be at an edge."""
    if isinstance(column, Choice):
        return iter(())
    return (value for value in column if isinstance(value, int | float) and math.isfinite(value))


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


def _closed(ends: Sequence[Number], edge: float, axis: Axis) -> list[Any]:
    return values([edge if end is None or (axis.log and end <= 0) else end for end in ends])


def evenly(n: int, most: int) -> list[int]:
    """At most `most` indices of n, evenly spread, first and last among them."""
    if n <= most:
        return list(range(n))
    return sorted({round(index * (n - 1) / (most - 1)) for index in range(most)})


def label(text: str) -> str:
    """Text for Plotly, which reads a little HTML and its own `%{...}` in labels."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("%{", "% {")


def values(column: Iterable[float | str | None]) -> list[Any]:
    """A column for JSON: six significant digits are finer than any screen, and keep the file small.

    What is no finite number becomes None; names stay.
    """
    return [value if isinstance(value, str) or value is None else _short(float(value)) for value in column]


def _short(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None
    if value.is_integer() and abs(value) < 2**53:
        return int(value)
    return float(f"{value:.6g}")
