"""How cards are laid out: words are never broken, and below 60 columns a table becomes `name: value` lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from paceline.records.wrap import NARROW as NARROW
from paceline.records.wrap import wrap

PIPE_WIDTH = 160
"""A pipe has no width, and paths are better left whole there."""
_LEAST_DETAIL = 24
_GAP = 2


class Block(Protocol):
    """A part of a card."""

    def lines(self, width: int) -> list[Text]:
        """Its lines; longer than `width` only where a single word is."""


class Card:
    """Parts one below the other, with an empty line between groups of them."""

    def __init__(self, *groups: Sequence[Block]) -> None:
        self.groups = groups

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for index, group in enumerate(filter(None, self.groups)):
            if index:
                yield Text("")
            for block in group:
                yield from block.lines(options.max_width)


def card_console() -> Console:
    """Where cards go: a terminal has its width, a pipe a wide one."""
    console = Console(highlight=False, markup=False, emoji=False)
    if console.is_terminal:
        return console
    return Console(highlight=False, markup=False, emoji=False, width=PIPE_WIDTH)


def show(console: Console, card: Card) -> None:
    """Print a card; a word that is wider than the terminal is left whole."""
    console.print(card, soft_wrap=True)


def safe(text: str) -> str:
    """Text of a run without anything that a terminal would obey."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


class Words:
    """A paragraph.

    Args:
        text: what it says.
        style: of all of it.
        head: what its first line begins with, in a style of its own; other lines are not indented.
        indent: what each line begins with.
    """

    def __init__(self, text: str, style: str = "", *, head: tuple[str, str] = ("", ""), indent: str = "") -> None:
        self._text, self._style, self._head, self._indent = safe(text), style, head, indent

    def lines(self, width: int) -> list[Text]:
        """The lines at this terminal width."""
        head, head_style = self._head
        found = [Text(line, style=self._style) for line in wrap(self._text, width, self._indent + head, self._indent)]
        found[0].stylize(head_style, 0, len(head))
        return found


class Row:
    """A number or a place with its name, and what belongs to it.

    Args:
        label: its name.
        value: as people read it.
        details: each in lines of its own.
        style: of the first detail.
    """

    def __init__(self, label: str, value: str, details: Sequence[str] = (), style: str = "") -> None:
        self.label, self.value = safe(label), safe(value)
        self.details = [safe(detail) for detail in details if detail]
        self.style = style


class Rows:
    """Rows with labels, values and details in columns; `name: value` lines where there is no room for that."""

    def __init__(self, rows: Sequence[Row], *, value_style: str = "bold", right: bool = True) -> None:
        self._rows, self._value_style, self._right = rows, value_style, right

    def lines(self, width: int) -> list[Text]:
        """The lines at this terminal width."""
        label = max((len(row.label) for row in self._rows), default=0)
        value = max((len(row.value) for row in self._rows), default=0)
        detailed = any(row.details for row in self._rows)
        room = width - label - _GAP - (value + _GAP if detailed else 0)
        if width < NARROW or room < _LEAST_DETAIL:
            return [line for row in self._rows for line in self._stacked(row, width)]
        if not detailed:
            return [line for row in self._rows for line in self._pair(row, label, width)]
        return [line for row in self._rows for line in self._in_columns(row, label, value, width)]

    def _stacked(self, row: Row, width: int) -> list[Text]:
        label = f"{row.label}:" if row.label else ""
        found = [Text(line, style=self._value_style) for line in wrap(f"{label} {row.value}", width, "", "  ")]
        named = len(label)  # characters of the label that further lines begin with
        for line in found:
            begin = len(line.plain) - len(line.plain.lstrip())
            line.stylize("not bold dim", begin, begin + max(0, named))
            named -= len(line.plain) - begin + 1
        for index, detail in enumerate(row.details):
            found += [Text(line, style="dim" if index else row.style) for line in wrap(detail, width, "  ")]
        return found

    def _pair(self, row: Row, label: int, width: int) -> list[Text]:
        head = row.label.ljust(label + _GAP)
        if max(map(len, row.value.split()), default=0) > width - len(head):
            return self._stacked(row, width)
        found = [Text(line) for line in wrap(row.value, width, head)]
        found[0].stylize("dim", 0, len(head))
        return found

    def _in_columns(self, row: Row, label: int, value: int, width: int) -> list[Text]:
        shown = row.value.rjust(value) if self._right else row.value.ljust(value)
        head = row.label.ljust(label + _GAP) + shown
        found = []
        for index, detail in enumerate(row.details or [""]):
            first = head + " " * _GAP if index == 0 else " " * (label + value + 2 * _GAP)
            style = "dim" if index else row.style
            for line in wrap(detail, width, first, " " * len(first)):
                text = Text(line.rstrip())
                text.stylize(style, label + value + 2 * _GAP)
                found.append(text)
        found[0].stylize("dim", 0, label)
        found[0].stylize(self._value_style, label + _GAP, label + _GAP + value)
        return found


class Grid:
    """A table of short texts without its empty columns; each row becomes `column: value` lines where words do not fit
    side by side.

    Args:
        columns: their names.
        rows: as many cells each.
        heads: so many columns name the row; they stand at the left.
        caption: above it.
    """

    def __init__(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], heads: int = 1, caption: str = ""
    ) -> None:
        used = [index for index in range(len(columns)) if index < heads or any(row[index] for row in rows)]
        self._columns = [safe(columns[index]) for index in used]
        self._rows = [[safe(row[index]) for index in used] for row in rows]
        self._heads, self._caption = heads, caption

    def lines(self, width: int) -> list[Text]:
        """The lines at this terminal width."""
        found = Words(self._caption, "dim").lines(width) if self._caption else []
        widths = self._widths(width)
        if width < NARROW or widths is None:
            return found + [line for row in self._rows for line in self._stacked(row, width)]
        for index, row in enumerate([self._columns, *self._rows]):
            found += self._row(row, widths, "bold" if index == 0 else "")
        return found

    def _widths(self, width: int) -> list[int] | None:
        """Of the columns, the widest made narrower until all fit; None where no word-whole layout does."""
        table = list(zip(self._columns, *self._rows, strict=True))
        widths = [max(len(cell) for cell in column) for column in table]
        least = [max((len(word) for cell in column for word in cell.split()), default=1) for column in table]
        while sum(widths) + _GAP * (len(widths) - 1) > width:
            shrinkable = [index for index, each in enumerate(widths) if each > least[index]]
            if not shrinkable:
                return None
            widths[max(shrinkable, key=lambda index: widths[index])] -= 1
        return widths

    def _row(self, cells: Sequence[str], widths: Sequence[int], style: str) -> list[Text]:
        wrapped = [wrap(cell, size) for cell, size in zip(cells, widths, strict=True)]
        found = []
        for line in range(max(len(each) for each in wrapped)):
            parts = []
            for index, (each, size) in enumerate(zip(wrapped, widths, strict=True)):
                part = each[line] if line < len(each) else ""
                parts.append(part.ljust(size) if index < self._heads else part.rjust(size))
            text = Text((" " * _GAP).join(parts).rstrip(), style=style)
            text.stylize("dim", 0, widths[0])
            found.append(text)
        return found

    def _stacked(self, row: Sequence[str], width: int) -> list[Text]:
        found = []
        for index, (name, cell) in enumerate(zip(self._columns, row, strict=True)):
            indent, style = ("", "bold") if index < self._heads else ("  ", "")
            if cell:
                found += [Text(line, style=style) for line in wrap(f"{name}: {cell}", width, indent, f"{indent}  ")]
        return found
