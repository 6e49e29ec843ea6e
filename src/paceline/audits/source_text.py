"""The text of the script's lines, where its files can still be read."""

from __future__ import annotations

import linecache
from pathlib import Path

from paceline.records.place import Place


def text_at(place: Place | None, *, before: int = 0) -> str | None:
    """The line of a place, and some lines before it; None where the file cannot be read or has no such line.

    Args:
        place: a line of the script.
        before: lines above it that are wanted too.
    """
    if place is None or place.line < 1:
        return None
    try:
        if not Path(place.path).is_file():  # a named pipe would block
            return None
    except (OSError, ValueError):
        return None
    linecache.checkcache(place.path)
    first = max(1, place.line - before)
    text = "".join(linecache.getline(place.path, line) for line in range(first, place.line + 1))
    return text or None
