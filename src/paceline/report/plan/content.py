"""What a plan's page shows besides its figures: a tinted table, bars, and the parts of every kind of plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.report.page.figures import Figure, Table
from paceline.report.quantities import Quantity


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
class Content:
    """All that a page shows of a plan besides what every plan has.

    Attributes:
        title, headline: of the page.
        quantities: every number, in the order of reading; the first five stand on top.
        answer: the table that answers what was asked, short enough for a terminal.
        heading, lead: above what answers in the page.
        answers: tables of the page that answer.
        figures: in the order of reading.
        heat: a table whose fields are tinted, before the other answers; None where there is none.
        bars, bars_heading, bars_lead: a list of bars, where there is one.
    """

    title: str
    headline: str
    quantities: Sequence[Quantity]
    answer: Table
    heading: str
    lead: str
    answers: Sequence[Table]
    figures: Sequence[Figure]
    heat: Heat | None = None
    bars: Sequence[Bar] = ()
    bars_heading: str = ""
    bars_lead: str = ""
