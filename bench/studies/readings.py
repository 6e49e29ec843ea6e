"""Where the numbers stand in the result of `paceline landscape` (paceline.records.landscape). Only this file knows.

A number that is not there is None and shown as not measured; nothing is made up for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Record = Mapping[str, Any]
Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Reading:
    """One number of a measurement.

    Attributes:
        title: for people.
        path: keys, and places in lists, from the result's top.
        error: where its stated error stands; empty for a number that has none.
        kind: of that error.
        flag: where it is said whether the number converged; empty where nothing is said.
    """

    title: str
    path: Path
    error: Path = ()
    kind: str = ""
    flag: Path = ()

    def value(self, record: Record) -> float | None:
        """Of one record; None where it was not measured or is no finite number."""
        return number(record, self.path)

    def values(self, records: Sequence[Record]) -> list[float]:
        """Of those records that have it."""
        return [value for record in records if (value := self.value(record)) is not None]

    def error_of(self, record: Record) -> float | None:
        """Its stated error in one record; None where none is stated."""
        return number(record, self.error) if self.error else None

    def unconverged(self, record: Record) -> bool:
        """Whether the record says that the number has not converged."""
        return bool(self.flag) and at(record, self.flag) is False


EIGENVALUE = Reading(
    "largest eigenvalue", ("eigenvalues", "values", 0), ("eigenvalues", "residuals", 0), "residual",
    ("eigenvalues", "converged"),
)  # fmt: skip
WEIGHTED_EIGENVALUE = Reading(
    "largest eigenvalue, weighted with the weights' sizes", ("eigenvalues", "weighted_values", 0),
    ("eigenvalues", "weighted_residuals", 0), "residual", ("eigenvalues", "weighted_converged"),
)  # fmt: skip
TRACE = Reading("trace", ("trace", "value"), ("trace", "error"), "standard error", ("trace", "converged"))
WEIGHTED_TRACE = Reading(
    "trace, weighted with the squared weights", ("trace", "weighted_value"), ("trace", "weighted_error"),
    "standard error", ("trace", "weighted_converged"),
)  # fmt: skip
SAM = Reading("SAM sharpness, radius 0.05", ("sam", "value"))
ADAPTIVE_SAM = Reading("adaptive SAM sharpness, radius 0.05", ("sam", "adaptive_value"))
KESKAR = Reading("Keskar's sharpness, box of 1e-3, %", ("keskar", "value"))

FORMS: tuple[tuple[Reading, Reading | None], ...] = (
    (EIGENVALUE, WEIGHTED_EIGENVALUE),
    (TRACE, WEIGHTED_TRACE),
    (SAM, ADAPTIVE_SAM),
    (KESKAR, None),
)
"""(plain, reparametrisation-aware); Keskar's number has no such form (docs/reference/landscape.md)."""
PLAIN = tuple(plain for plain, _ in FORMS)
AWARE = tuple(aware for _, aware in FORMS if aware is not None)
WITH_ERROR = (EIGENVALUE, WEIGHTED_EIGENVALUE, TRACE, WEIGHTED_TRACE)
"""Those that state an error, and whether they converged."""

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


def said(records: Sequence[Record], path: Sequence[str | int]) -> str:
    """What the records say at a path, in words; all of it where they differ, `not recorded` where they say nothing."""
    found = sorted({f"{value:,}" if isinstance(value, int) else str(value) for r in records if (value := at(r, path))})
    return " or ".join(found) or "not recorded"
