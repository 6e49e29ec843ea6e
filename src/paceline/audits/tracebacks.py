"""Find a Python exception in the text that a process left on stderr."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from paceline.records.place import Place, own_places, place_in_stacks, places_in

_HEADER = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$")
_RANK_PREFIX = re.compile(r"^\[rank\d+\]: ?", re.MULTILINE)
"""torch writes it before each line of an uncaught exception once there is a process group."""
_FATAL = re.compile(r"^Fatal Python error: ", re.MULTILINE)
_UNCAUGHT = re.compile(r"\[rank\d+\]: ?Traceback")
_MAX_SUMMARY = 300
_CHAINED = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
_MAX_DETAIL_LINES = 6
_LOG_LINE = re.compile(r"^(\[[WEI]|[WEI]\d{4} |\[rank\d+\])")
"""How torch's own log begins its lines, which may follow a message."""


@dataclass(frozen=True)
class Raised:
    """An exception.

    Attributes:
        summary: type and first line of the message.
        at: the user's own innermost line, else the innermost of all; None when no frame is known.
        detail: further lines of the message.
        earlier: summaries of the exceptions that it was raised from or while handling, the latest first.
        origin: the first of those, with which it began; None where there are none.
        uncaught: torch's hook for uncaught exceptions wrote it; False also when that is not known.
        last: nothing was written after it.
    """

    summary: str
    at: Place | None = None
    detail: str = field(default="", compare=False)
    earlier: tuple[str, ...] = field(default=(), compare=False)
    origin: Raised | None = field(default=None, compare=False)
    uncaught: bool = field(default=False, compare=False)
    last: bool = field(default=False, compare=False)


def without_rank(text: str) -> str:
    """`text` without the `[rank1]: ` that torch puts before the lines of a traceback."""
    return _RANK_PREFIX.sub("", text)


def parse_trace(text: str) -> Raised | None:
    """The last exception in `text`, or None.

    In a chain of exceptions, this is the one that ended the program. Output after the traceback is ignored. Syntax
    errors, which have no header, are found if there is no other exception.
    """
    marked = text.splitlines()
    lines = [without_rank(line) for line in marked]
    for index in range(len(lines) - 1, -1, -1):
        if _begins(lines[index]):
            found = _block(lines[index + 1 :])
            if found is not None:
                uncaught = _UNCAUGHT.search(marked[index]) is not None
                chain = _earlier(lines[:index])
                texts = tuple(f"{each.summary}\n{each.detail}".strip() for each in chain)
                return replace(found, earlier=texts, origin=chain[-1] if chain else None, uncaught=uncaught)
    return _syntax_error(lines)


def split_fatal(text: str) -> tuple[str, Place | None]:
    """The text before the stacks that faulthandler wrote when a signal killed a process, and the user's own line there.

    All of the text and None where there are no such stacks.
    """
    found = list(_FATAL.finditer(text))
    if not found:
        return text, None
    return text[: found[-1].start()], place_in_stacks(text[found[-1].start() :])


def _begins(line: str) -> bool:
    """True if a traceback begins here; a progress bar may stand in the same line before it."""
    return line.endswith(_HEADER)


def _earlier(lines: list[str]) -> tuple[Raised, ...]:
    """The exceptions that a chain began with, given the lines before its last traceback."""
    found: list[Raised] = []
    while True:
        before = [index for index, line in enumerate(lines) if line.strip()]
        if not before or lines[before[-1]] not in _CHAINED:
            return tuple(found)
        headers = [index for index, line in enumerate(lines) if _begins(line)]
        if not headers:
            return tuple(found)
        raised = _block(lines[headers[-1] + 1 : before[-1]])
        if raised is not None:
            found.append(raised)
        lines = lines[: headers[-1]]


def _block(lines: list[str]) -> Raised | None:
    """Frames, all indented, and then the exception at the margin."""
    for index, line in enumerate(lines):
        if not line.strip() or line[0].isspace():
            continue
        if _EXCEPTION.match(line):
            detail = _detail(lines[index + 1 :])
            rest = lines[index + 1 + len(detail) :]
            last = not any(each.strip() and not _LOG_LINE.match(each) for each in rest)
            return replace(_raised(line, lines[:index]), detail="\n".join(detail), last=last)
        return None
    return None


def _detail(lines: list[str]) -> list[str]:
    """The rest of a message: up to a blank line, or a line of somebody's log."""
    detail: list[str] = []
    for line in lines[:_MAX_DETAIL_LINES]:
        if not line.strip() or _LOG_LINE.match(line) or _begins(line):
            break
        detail.append(line)
    return detail


def _syntax_error(lines: list[str]) -> Raised | None:
    for index in range(len(lines) - 1, 0, -1):
        match = _EXCEPTION.match(lines[index])
        if match and match["type"] in {"SyntaxError", "IndentationError", "TabError"}:
            found = _raised(lines[index], lines[max(0, index - 5) : index])
            return found if found.at is not None else None
    return None


def _raised(summary: str, frames: list[str]) -> Raised:
    if len(summary) > _MAX_SUMMARY:
        summary = summary[: _MAX_SUMMARY - 3] + "..."
    places = places_in("\n".join(frames))
    candidates = own_places(places) or places
    return Raised(summary, candidates[-1] if candidates else None)
