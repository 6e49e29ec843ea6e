"""Lines of the user's code: one type for them, whose code a file is, and the lines that Python's own output names."""

from __future__ import annotations

import re
import sysconfig
from functools import cache
from pathlib import Path

import msgspec

_OURS = str(Path(__file__).resolve().parents[1])
_LIBRARIES = ("site-packages", "dist-packages", "paceline_course")
"""Folders; the last is the course's engine, which a checkout has outside `site-packages`."""
_CELL = "<ipython-input"
_FRAME = re.compile(r'^\s+File "(?P<path>.+?)", line (?P<line>\d+)(?:,? in (?P<function>.+))?$', re.MULTILINE)
"""As tracebacks write it, and faulthandler, which leaves out the comma."""
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*\(most recent call first\):$", re.MULTILINE)


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A line of code."""

    path: str
    line: int
    """1 for the first."""
    function: str = ""
    """Around that line; empty at the top of a module."""

    def __str__(self) -> str:
        within = f", in {self.function}" if self.function and self.function != "<module>" else ""
        return f"{self.path}:{self.line}{within}"

    def below(self, folder: Path) -> Place:
        """The same line with its path relative to a folder; itself where the file is not in that folder."""
        path = Path(self.path)
        return (
            msgspec.structs.replace(self, path=str(path.relative_to(folder))) if path.is_relative_to(folder) else self
        )


@cache
def is_library(path: str) -> bool:
    """True if a file belongs to a library, to Python or to Paceline: users look elsewhere first for a mistake."""
    if path.startswith("<"):
        return not path.startswith(_CELL)
    if any(part in _LIBRARIES for part in Path(path).parts):
        return True
    return path.startswith((f"{sysconfig.get_path('stdlib')}/", f"{_OURS}/"))


def places_in(text: str) -> list[Place]:
    """The frames of a traceback or of faulthandler's output, in the order of the text."""
    return [
        Place(path=found["path"], line=int(found["line"]), function=found["function"] or "")
        for found in _FRAME.finditer(text)
    ]


def own_places(places: list[Place], folder: Path | None = None) -> list[Place]:
    """Those in the user's own files; with a folder, in files below it."""
    if folder is not None:
        return [place for place in places if Path(place.path).is_relative_to(folder)]
    return [place for place in places if not is_library(place.path)]


def place_in_traceback(text: str, folder: Path | None = None) -> Place | None:
    """The user's innermost own line in a traceback; None where it names none."""
    own = own_places(places_in(text), folder)
    return own[-1] if own else None


def place_in_stacks(text: str, folder: Path | None = None) -> Place | None:
    """The user's innermost own line in what faulthandler wrote; the thread that it calls current comes first.

    Threads of libraries have no such line, so the first that has one is the one in question.
    """
    heads = list(_THREAD.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)] * bool(heads)
    threads = [
        (not head.group().startswith("Current"), text[head.end() : end]) for head, end in zip(heads, ends, strict=True)
    ]
    for _, thread in sorted(threads, key=lambda each: each[0]):
        if own := own_places(places_in(thread), folder):
            return own[0]
    return None
