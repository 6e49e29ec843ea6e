"""Repairs as edits of the source text, which leave the rest of the file as it is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Edit:
    """A piece of text that replaces another one.

    Attributes:
        start: line from 1, and column in UTF-8 bytes as `ast` counts them.
        end: likewise, behind the last character that is replaced.
        text: what stands there instead.
    """

    start: tuple[int, int]
    end: tuple[int, int]
    text: str


def replace(node: ast.AST, text: str) -> Edit:
    """Put `text` in the place of a node."""
    return Edit(_start(node), _end(node), text)


def add_keyword(call: ast.Call, keyword: str, source: str) -> Edit:
    """Add `keyword` (`name=value`) behind the last argument of a call.

    Args:
        source: the text of the file, to find a trailing comma.
    """
    line, column = _end(call)
    lines = _lines(source)
    at = line, column - 1  # the closing parenthesis
    arguments = [*call.args, *call.keywords]
    if not arguments:
        return Edit(at, at, keyword)
    behind = max(_end(each) for each in arguments)
    between = _between(lines, behind, at)
    if "," in between.partition("#")[0]:
        comma = _find(lines, behind, ",")
        return Edit((comma[0], comma[1] + 1), (comma[0], comma[1] + 1), f" {keyword},")
    return Edit(behind, behind, f", {keyword}")


def remove_keyword(call: ast.Call, name: str) -> Edit | None:
    """Remove a keyword argument; None if the call does not have it, or has it as its only argument."""
    arguments: list[ast.expr | ast.keyword] = sorted([*call.args, *call.keywords], key=_start)
    for index, each in enumerate(arguments):
        if isinstance(each, ast.keyword) and each.arg == name:
            if index > 0:
                return Edit(_end(arguments[index - 1]), _end(each), "")
            if len(arguments) > 1:
                return Edit(_start(each), _start(arguments[1]), "")
    return None


def apply(source: str, edits: Iterable[Edit]) -> str:
    """The text with all edits that do not overlap with an earlier one."""
    lines = [line.encode() for line in _lines(source)]
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line))
    content = b"".join(lines)
    parts: list[bytes] = []
    at = 0
    for edit in sorted(set(edits)):
        first, last = offsets[edit.start[0] - 1] + edit.start[1], offsets[edit.end[0] - 1] + edit.end[1]
        if first < at:
            continue
        parts += [content[at:first], edit.text.encode()]
        at = last
    return b"".join([*parts, content[at:]]).decode()


def _lines(source: str) -> list[str]:
    """Lines with their ends, as `ast` counts them: form feeds and the like do not end one."""
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", source)


def _start(node: ast.AST) -> tuple[int, int]:
    return node.lineno, node.col_offset  # type: ignore[attr-defined]


def _end(node: ast.AST) -> tuple[int, int]:
    return node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    if start[0] == end[0]:
        return lines[start[0] - 1].encode()[start[1] : end[1]].decode()
    middle = "".join(lines[start[0] : end[0] - 1])
    return lines[start[0] - 1].encode()[start[1] :].decode() + middle + lines[end[0] - 1].encode()[: end[1]].decode()


def _find(lines: list[str], start: tuple[int, int], text: str) -> tuple[int, int]:
    line, column = start
    while text.encode() not in lines[line - 1].encode()[column:]:
        line, column = line + 1, 0
    return line, lines[line - 1].encode().index(text.encode(), column)
