"""Notebooks as Python: code cells, one below the other, with magics left out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

_MAGIC = re.compile(r"^\s*(?:[%!?]|.*\?\??\s*$)")
_ASSIGNED_MAGIC = re.compile(r"^(\s*[\w.,\s]+=\s*)[%!].*$")


class NotebookError(ValueError):
    """A file that is no notebook."""


@dataclass(frozen=True)
class Cell:
    """A code cell: its number among all cells from 1, and the first line of its text within the joined text."""

    number: int
    first_line: int


def python_of(content: bytes) -> tuple[str, tuple[Cell, ...]]:
    """The code cells joined to one module, and where each begins.

    Lines of magics and shell commands become `pass`; a cell with a cell magic other than `%%time` is left out.

    Raises:
        NotebookError: `content` is no notebook of format 4.
    """
    try:
        cells = json.loads(content)["cells"]
        sources = [(number, _text(cell["source"])) for number, cell in enumerate(cells, 1) if _is_code(cell)]
    except (ValueError, KeyError, TypeError) as error:
        raise NotebookError("not a notebook of format 4") from error
    lines: list[str] = []
    found = []
    for number, text in sources:
        found.append(Cell(number, len(lines) + 1))
        lines += _without_magics(text.splitlines())
    return "\n".join(lines) + "\n", tuple(found)


def cell_of(cells: Iterable[Cell], line: int) -> tuple[int, int] | None:
    """Number of the cell and line within it, of a line of the joined text."""
    at = None
    for cell in cells:
        if cell.first_line <= line:
            at = (cell.number, line - cell.first_line + 1)
    return at


def _is_code(cell: dict[str, object]) -> bool:
    return cell["cell_type"] == "code"


def _text(source: object) -> str:
    return source if isinstance(source, str) else "".join(source)  # type: ignore[arg-type]


def _without_magics(lines: list[str]) -> list[str]:
    first = next((line for line in lines if line.strip()), "")
    if first.startswith("%%") and not first.startswith(("%%time", "%%capture")):
        return ["pass"] * len(lines)
    return [_plain(line) for line in lines]


def _plain(line: str) -> str:
    if assigned := _ASSIGNED_MAGIC.match(line):
        return f"{assigned[1]}None"
    if _MAGIC.match(line) and not line.lstrip().startswith("#"):
        return line[: len(line) - len(line.lstrip())] + "pass"
    return line
