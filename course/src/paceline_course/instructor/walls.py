"""Predictions of a class beside what came out. What learners call things is theirs, and is cut and cleaned here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from paceline_course.progress import Progress

_MOST_WALLS, _LONGEST = 60, 60


@dataclass(frozen=True)
class Wall:
    """What was expected of one experiment, and what came out.

    Attributes:
        key: as the labs call it, L1.4.
        name: of the number.
        unit: of all of it.
        expected: finite numbers, one a learner.
        measured: likewise, of those who went on to measure.
        unusable: numbers that are not finite.
    """

    key: str
    name: str
    unit: str
    expected: list[float]
    measured: list[float]
    unusable: int = 0

    @property
    def outcome(self) -> float | None:
        """The median of what was measured."""
        return median(self.measured) if self.measured else None


def walls_of(labs: Sequence[str], known: Sequence[Progress]) -> list[Wall]:
    """What several learners predicted, in the order of the labs.

    Args:
        labs: ids; predictions of others are left out.
        known: one a learner.
    """
    expected: dict[str, list[float]] = {}
    measured: dict[str, list[float]] = {}
    units: dict[str, str] = {}
    for progress in known:
        for name, prediction in progress.predictions.items():
            expected.setdefault(name, []).append(prediction.expected)
            units.setdefault(name, prediction.unit)
            if prediction.measured is not None and math.isfinite(prediction.measured):
                measured.setdefault(name, []).append(prediction.measured)
    walls = []
    most = sorted(expected, key=lambda name: -len(expected[name]))[:_MOST_WALLS]
    for name in most:
        values = expected[name]
        key, _, what = name.partition(":")
        if key.partition(".")[0] in labs:
            finite = [value for value in values if math.isfinite(value)]
            walls.append(
                Wall(
                    _shown(key),
                    _shown(what),
                    _shown(units[name]),
                    finite,
                    measured.get(name, []),
                    len(values) - len(finite),
                )
            )
    return sorted(walls, key=lambda wall: (labs.index(wall.key.partition(".")[0]), _number(wall.key), wall.name))


def _shown(text: str) -> str:
    """What a learner's file calls something, as it may stand in a line."""
    return "".join(sign if sign.isprintable() else " " for sign in text)[:_LONGEST]


def _number(key: str) -> int:
    tail = key.partition(".")[2]
    return int(tail) if tail.isdecimal() else 0
