"""Find a Python exception in the text that a process left on stderr."""

from __future__ import annotations

import re
from dataclasses import dataclass

from paceline.records.places import is_foreign

_HEADER = "Traceback (most recent call last):"
_FRAME = re.compile(r'^\s+File "(?P<path>.+?)", line (?P<line>\d+)(?:, in (?P<function>.+))?$')
_EXCEPTION = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$")
_RANK_PREFIX = re.compile(r"^\[rank\d+\]: ?", re.MULTILINE)
"""torch writes it before each line of an uncaught exception once there is a process group."""
_MAX_SUMMARY = 300


@dataclass(frozen=True)
class Raised:
    """An exception.

    Attributes:
        summary: type and first line of the message.
        path: the file of the innermost frame that is the user's own; "" when no frame is known.
        line: in that file, 1 or more; 0 when no frame is known.
        function: around that line; "" at the top of a module.
    """

    summary: str
    path: str = ""
    line: int = 0
    function: str = ""

    @property
    def place(self) -> str:
        """As "train.py:12, in main"; "" when unknown."""
        if not self.path:
            return ""
        within = f", in {self.function}" if self.function and self.function != "<module>" else ""
        return f"{self.path}:{self.line}{within}"


def without_rank(text: str) -> str:
    """`text` without the `[rank1]: ` that torch puts before the lines of a traceback."""
    return _RANK_PREFIX.sub("", text)


def parse_trace(text: str) -> Raised | None:
    """The last exception in `text`, or None.

    Of a chain of exceptions that is the one which ended the program. Output after the traceback does not matter.
    Syntax errors, which come without a header, are found when nothing else is.
    """
    lines = without_rank(text).splitlines()
    for index in range(len(lines) - 1, -1, -1):
        if lines[index] == _HEADER:
            found = _block(lines[index + 1 :])
            if found is not None:
                return found
    return _syntax_error(lines)


def _block(lines: list[str]) -> Raised | None:
    """Frames, all indented, and then the exception at the margin."""
    frames = []
    for line in lines:
        if not line.strip():
            continue
        if line[0].isspace():
            if match := _FRAME.match(line):
                frames.append(match)
        elif match := _EXCEPTION.match(line):
            return _raised(line, frames)
        else:
            return None
    return None


def _syntax_error(lines: list[str]) -> Raised | None:
    for index in range(len(lines) - 1, 0, -1):
        match = _EXCEPTION.match(lines[index])
        if match and match["type"] in {"SyntaxError", "IndentationError", "TabError"}:
            frames = [found for line in lines[max(0, index - 5) : index] if (found := _FRAME.match(line))]
            return _raised(lines[index], frames) if frames else None
    return None


def _raised(summary: str, frames: list[re.Match[str]]) -> Raised:
    if len(summary) > _MAX_SUMMARY:
        summary = summary[: _MAX_SUMMARY - 3] + "..."
    if not frames:
        return Raised(summary)
    own = [frame for frame in frames if not is_foreign(frame["path"])]
    frame = (own or frames)[-1]
    return Raised(summary, frame["path"], int(frame["line"]), frame["function"] or "")
