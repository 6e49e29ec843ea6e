"""Where the numbers stand in the result of `paceline landscape` (paceline.records.landscape). Only this file knows.

A number that is not there is None and shown as not measured; nothing is made up for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Reading:
    """One number of a measurement.

    Attributes:
        title: for people.
        path: keys, and places in lists, from the result's top.
    """

    title: str
    path: tuple[str | int, ...]

    def value(self, record: Record) -> float | None:
        """Of one record; None where it was not measured or is no finite number."""
        return number(record, self.path)

    def values(self, records: Sequence[Record]) -> list[float]:
        """Of those records that have it."""
        return [value for record in records if (value := self.value(record)) is not None]


PLAIN = (
    Reading("largest eigenvalue", ("eigenvalues", "values", 0)),
    Reading("trace", ("trace", "value")),
    Reading("Keskar's sharpness, box of 1e-3", ("keskar", "value")),
    Reading("SAM sharpness, radius 0.05", ("sam", "value")),
)
AWARE = (
    Reading("largest eigenvalue, weighted with the weights' sizes", ("eigenvalues", "weighted_values", 0)),
    Reading("trace, weighted with the squared weights", ("trace", "weighted_value")),
    Reading("adaptive SAM sharpness", ("sam", "adaptive_value")),
)

LOSS = Reading("loss there", ("curvature_loss",))
GRADIENT = Reading("norm of its gradient", ("gradient_norm",))


def at(record: Record, path: Sequence[str | int]) -> Any:
    """What stands at a path of the result; None where there is nothing."""
    found: Any = record["result"]
    for key in path:
        try:
            found = found[key]
        except (KeyError, IndexError, TypeError):
            return None
    return found


def number(record: Record, path: Sequence[str | int]) -> float | None:
    """A finite number at a path."""
    found = at(record, path)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        return None
    return float(found)


def pair(record: Record, path: Sequence[str | int], across: str, up: str) -> tuple[list[float], list[float]] | None:
    """Two lists of one length."""
    found = at(record, path)
    if not isinstance(found, Mapping):
        return None
    first, second = found.get(across), found.get(up)
    if not isinstance(first, list) or not isinstance(second, list) or len(first) != len(second) or not first:
        return None
    return first, second


def density(record: Record) -> tuple[list[float], list[float]] | None:
    """(eigenvalues, density) on the grid."""
    return pair(record, ("density",), "grid", "density")


def curve(record: Record) -> tuple[list[float], list[float]] | None:
    """(position, loss) of a slice, or of the way between two runs."""
    name = "interpolation" if record["kind"] == "interpolation" else "line"
    return pair(record, (name,), "points", "loss")


def barrier(record: Record) -> float | None:
    """Of an interpolation."""
    return number(record, ("interpolation", "barrier"))


def not_converged(record: Record) -> bool:
    """Whether the eigenvalues of a measurement are said not to have converged."""
    return at(record, ("eigenvalues", "converged")) is False
