"""`# paceline: ignore[DP012] reason`: comments that accept a finding of their line."""

from __future__ import annotations

import io
import re
import tokenize

import msgspec

from paceline.check.selection import UNUSED, Selection, code_of
from paceline.records.schema import Finding
from paceline.syntax.notebook_cells import cell_of
from paceline.syntax.source_files import Source

MARK = b"paceline:"
"""Files without these bytes have no such comment."""
_COMMENT = re.compile(r"#\s*paceline:\s*ignore\b\s*(?:\[([^\]]*)\])?")


class Ignore(msgspec.Struct, frozen=True):
    """One comment.

    Attributes:
        line: in which it stands; in a notebook of the joined cells.
        column: of its first character, from 1.
        codes: as written, codes or names of rules; empty if it names none.
        cell: of a notebook, with the line within it; None for a script.
    """

    line: int
    column: int
    codes: tuple[str, ...]
    cell: tuple[int, int] | None = None


def ignores_in(source: Source) -> list[Ignore]:
    """Comments of a file that accept findings."""
    found: list[Ignore] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
            if token.type == tokenize.COMMENT and (match := _COMMENT.search(token.string)):
                line, column = token.start[0], token.start[1] + match.start() + 1
                codes = tuple(each for each in re.split(r"[\s,]+", match[1] or "") if each)
                found.append(Ignore(line, column, codes, cell_of(source.cells, line)))
    except (tokenize.TokenError, SyntaxError):  # the parser reads what this one does not
        return found
    return found


def unused_ignore(ignore: Ignore, used: set[str], path: str, selection: Selection) -> Finding | None:
    """The finding about a comment that accepts nothing; None if all that it names is used.

    Args:
        used: codes and names that accepted a finding.
        path: of the file.
        selection: codes that it leaves out may have been used with another selection.
    """
    if not selection.reports(UNUSED[0], path):
        return None
    unknown = [each for each in ignore.codes if code_of(each) is None]
    silent = [
        each
        for each in ignore.codes
        if each not in used and (code := code_of(each)) is not None and selection.reports(code, path)
    ]
    if not ignore.codes:
        message, advice = "the comment names no rule, so it accepts nothing", "write # paceline: ignore[DP001] reason"
    elif unknown:
        message, advice = f"{', '.join(unknown)} is no rule", "paceline check --list-rules shows all"
    elif silent:
        message, advice = f"{', '.join(silent)} is not reported here, so it need not be accepted", "remove it"
    else:
        return None
    cell, line = ignore.cell or (None, ignore.line)
    return Finding(
        code=UNUSED[0],
        name=UNUSED[1],
        severity="warning",
        message=message,
        advice=advice,
        path=path,
        line=line,
        column=ignore.column,
        evidence={"source": "read"} | ({} if cell is None else {"cell": cell}),
    )
