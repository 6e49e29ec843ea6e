"""At which line of a learner's files a rank failed."""

from __future__ import annotations

import re
from pathlib import Path

from paceline.launch.hang import place_in
from paceline.launch.pool import RankFailure
from paceline.records.places import Place

_FRAME = re.compile(r'^\s+File "(?P<path>.+?)", line (?P<line>\d+)(?:, in (?P<function>.+))?$', re.MULTILINE)


def place_of(failure: RankFailure, folder: Path | None) -> str:
    """The innermost line of files in the folder, where the rank raised or where a signal killed it.

    Returns:
        "train.py:12, in main", the path relative to the folder; empty where no such line is known.
    """
    if folder is None:
        return ""
    at = _raised(failure.traceback, folder) or place_in(failure.stack, folder)
    return "" if at is None else str(at.below(folder))


def _raised(traceback: str, folder: Path) -> Place | None:
    found = [frame for frame in _FRAME.finditer(traceback) if Path(frame["path"]).is_relative_to(folder)]
    if not found:
        return None
    last = found[-1]
    return Place(path=last["path"], line=int(last["line"]), function=last["function"] or "")
