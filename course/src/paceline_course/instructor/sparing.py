"""What to leave out of a day that is too long: the choice of labs, or of exercises, that takes the fewest minutes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from paceline_course.content import Lab


def leave_out(labs: Sequence[Lab], minutes: int, kept: set[str]) -> list[str]:
    """What may be left out to spare that many minutes: the fewest minutes of labs, and of exercises of one lab."""
    free = [lab for lab in labs if lab.id not in kept and lab.exercises]
    said = []
    chosen = _least([(lab.id, lab.minutes) for lab in free], minutes)
    if chosen is None:
        rest = [lab for lab in labs if lab.exercises]
        chosen = _least([(lab.id, lab.minutes) for lab in rest], minutes)
    if chosen is not None:
        said.append(_saying(chosen))
    others = [(lab.id, lab.minutes) for lab in free if lab.minutes >= minutes and (chosen or [("", 0)]) != [_pair(lab)]]
    said += [_saying([other]) for other in sorted(others, key=lambda each: each[1])[:1]]
    return [*said, *exercises_to_leave_out(free, minutes)] or exercises_to_leave_out(labs, minutes)


def exercises_to_leave_out(labs: Sequence[Lab], minutes: int) -> list[str]:
    """The fewest minutes in exercises of one lab; none where no lab has as many."""
    # The last exercise of a lab asks for all of it, so it stays.
    within = [_least([(each.id, each.minutes) for each in lab.exercises[:-1]], minutes) for lab in labs]
    # Of labs that spare as much, the later one: what comes first, others build upon.
    best = min((each for each in reversed(within) if each), key=lambda each: sum(m for _, m in each), default=None)
    return [_saying(best)] if best is not None else []


def _pair(lab: Lab) -> tuple[str, int]:
    return lab.id, lab.minutes


def _saying(chosen: Sequence[tuple[str, int]]) -> str:
    return f"{', '.join(name for name, _ in chosen)} ({sum(minutes for _, minutes in chosen)} min)"


def _least(parts: Sequence[tuple[str, int]], minutes: int) -> list[tuple[str, int]] | None:
    """The parts that take the fewest minutes, but as many as asked for; of several choices the fewest, latest parts."""
    best: tuple[int, int, list[tuple[str, int]]] | None = None
    for size in range(1, len(parts) + 1):
        for chosen in itertools.combinations(reversed(parts), size):
            total = sum(each for _, each in chosen)
            if total >= minutes and (best is None or (total, size) < best[:2]):
                best = (total, size, list(reversed(chosen)))
    return best[2] if best is not None else None
