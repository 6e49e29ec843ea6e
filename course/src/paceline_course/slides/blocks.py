"""A slide's Markdown as blocks of plain data, for formats that are no HTML."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from markdown_it.token import Token

from paceline_course.slides.html import markdown


@dataclass(frozen=True)
class Run:
    """Letters of one kind.

    Attributes:
        text: in one line.
        bold, italic, code: how it looks.
        link: where it leads; empty for nowhere.
    """

    text: str
    bold: bool = False
    italic: bool = False
    code: bool = False
    link: str = ""


@dataclass(frozen=True)
class Paragraph:
    """A paragraph, or an item of a list.

    Attributes:
        runs: in order.
        level: 0 outside of lists, 1 in a list, 2 in a list in it.
        number: of an item in a numbered list; 0 in others.
    """

    runs: tuple[Run, ...]
    level: int = 0
    number: int = 0

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(run.text for run in self.runs)


@dataclass(frozen=True)
class Code:
    """Lines of code."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """Rows of cells, each a paragraph; the first row is the head."""

    rows: tuple[tuple[Paragraph, ...], ...]


Block = Paragraph | Code | Table


@dataclass
class _Reader:
    """Where in lists and tables we are."""

    counts: list[int] = field(default_factory=list)
    """Of each open list the number of its last item; -1 in a list of bullets."""
    rows: list[list[Paragraph]] = field(default_factory=list)
    in_table: bool = False

    def take(self, token: Token) -> Iterator[Block]:
        kind = token.type
        if kind in ("bullet_list_open", "ordered_list_open"):
            self.counts.append(0 if kind.startswith("ordered") else -1)
        elif kind in ("bullet_list_close", "ordered_list_close"):
            self.counts.pop()
        elif kind == "list_item_open" and self.counts[-1] >= 0:
            self.counts[-1] += 1
        elif kind == "fence":
            yield Code(tuple(token.content.rstrip("\n").split("\n")))
        elif kind in ("table_open", "table_close"):
            self.in_table = kind == "table_open"
            if not self.in_table:
                yield Table(tuple(tuple(row) for row in self.rows))
            self.rows = []
        elif kind == "tr_open":
            self.rows.append([])
        elif kind == "inline":
            runs = tuple(_runs(token.children or []))
            if self.in_table:
                self.rows[-1].append(Paragraph(runs))
            else:
                yield Paragraph(runs, len(self.counts), max(0, self.counts[-1]) if self.counts else 0)


def blocks(text: str) -> list[Block]:
    """The blocks of a slide, in order."""
    reader = _Reader()
    return [block for token in markdown().parse(text) for block in reader.take(token)]


def _runs(children: list[Token]) -> Iterator[Run]:
    bold = italic = False
    link = ""
    for token in children:
        if token.type in ("strong_open", "strong_close"):
            bold = token.type == "strong_open"
        elif token.type in ("em_open", "em_close"):
            italic = token.type == "em_open"
        elif token.type == "link_open":
            link = str(token.attrGet("href") or "")
        elif token.type == "link_close":
            link = ""
        elif token.type in ("softbreak", "hardbreak"):
            yield Run(" ", bold, italic, link=link)
        elif token.content:
            yield Run(token.content, bold, italic, token.type == "code_inline", link)
