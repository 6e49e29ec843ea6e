"""Check an exercise as soon as its file is saved. Never goes on to the next one by itself: the learner reads first."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from paceline_course.content import Exercise
from paceline_course.workspace import Workspace

_EVERY_S = 0.3


def changes(workspace: Workspace, only: Exercise | None = None, *, rounds: int | None = None) -> Iterator[Exercise]:
    """The exercises whose file was saved, as it happens; without end.

    Args:
        workspace: the learner's folder.
        only: look at this one alone.
        rounds: end after so many looks.
    """
    watched = [only] if only is not None else [each for lab in workspace.course.labs for each in lab.exercises]
    seen = {each.id: _stamp(workspace.file(each)) for each in watched}
    looks = 0
    while rounds is None or looks < rounds:
        looks += 1
        for each in watched:
            stamp = _stamp(workspace.file(each))
            if stamp != seen[each.id] and stamp is not None:
                seen[each.id] = stamp
                yield each
        time.sleep(_EVERY_S)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
