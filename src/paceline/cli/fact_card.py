"""Parts that cards share: numbers with what belongs to each, tables of numbers, where things are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from rich import box
from rich.table import Table
from rich.text import Text

from paceline.cli.card import safe


class FactLike(Protocol):
    """A number with its name, what belongs to it, and whether it can be relied on."""

    @property
    def label(self) -> str:
        """Its name."""

    @property
    def value(self) -> str:
        """The number, as people read it."""

    @property
    def detail(self) -> str:
        """What belongs to it."""

    @property
    def sure(self) -> bool:
        """Whether it can be relied on."""


def fact_table(rows: Sequence[FactLike]) -> Table:
    """Label, value and detail of each; the detail of what cannot be relied on stands out."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(overflow="fold", style="dim")
    grid.add_column(no_wrap=True, style="bold", justify="right")
    grid.add_column(overflow="fold")
    for row in rows:
        grid.add_row(safe(row.label), safe(row.value), Text(safe(row.detail), style="" if row.sure else "yellow"))
    return grid


def number_table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[str]], heads: int = 1) -> Table:
    """A table of numbers; its first `heads` columns name the row."""
    grid = Table(title=safe(caption), title_justify="left", title_style="dim", box=box.SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(columns):
        grid.add_column(Text(safe(name)), justify="left" if index < heads else "right", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(safe(cell)) for cell in row))
    return grid


def place_table(rows: Iterable[tuple[str, Path]]) -> Table:
    """Names and paths, of what exists."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for label, path in rows:
        if path.exists():
            grid.add_row(label, safe(str(path)))
    return grid
