"""Two states of a model, how far apart they are, and what that says. Numbers only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

TOLERANCE = 1e-9
"""Largest relative difference of a tensor of two trainings in float64 that are the same mathematics: right ones stay
below 1e-14 over hundreds of steps, the smallest faults are above 1e-6."""
_NOTHING = 1e-6
"""A gradient that should vanish is as long as this part of the whole at most."""
_EXACT = 1e-6
"""A factor explains an update when so small a part of it is left over."""


@dataclass(frozen=True)
class Comparison:
    """How far a state is from its reference.

    Attributes:
        relative: by tensor, ||ours - reference|| / ||reference||; infinite where one is not a finite number, or where
            the shape is another.
        missing: names that ours lacks.
        extra: names that only ours has.
        factor: when ours moved along with the reference but by another length, by how many times its length; None
            when no factor explains the difference, or nothing moved.
    """

    relative: dict[str, float]
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    factor: float | None = None

    @property
    def worst(self) -> tuple[str, float]:
        """The tensor that is farthest off, and how far; ("", 0) when there is none."""
        return max(self.relative.items(), key=lambda item: item[1], default=("", 0.0))

    def first_off(self, tolerance: float) -> tuple[str, float] | None:
        """The parameter that is farthest off, else the buffer, else any tensor; None within tolerance."""
        off = {name: value for name, value in self.relative.items() if not value <= tolerance}
        for kind in ("parameter:", "buffer:", ""):
            if found := {name: value for name, value in off.items() if name.startswith(kind)}:
                return max(found.items(), key=lambda item: item[1])
        return None

    def equal(self, tolerance: float = TOLERANCE) -> bool:
        """True if both have the same tensors, each within the tolerance."""
        return not self.missing and not self.extra and self.worst[1] <= tolerance


def compare(
    ours: Mapping[str, NDArray[Any]],
    reference: Mapping[str, NDArray[Any]],
    start: Mapping[str, NDArray[Any]] | None = None,
) -> Comparison:
    """Compare tensor by tensor.

    Args:
        ours: what is judged.
        reference: what it should be.
        start: where both began: the update's length is then compared as well.
    """
    common = [name for name in reference if name in ours]
    floors = _floors(reference)
    return Comparison(
        relative={name: _relative(ours[name], reference[name], floors[_kind(name)]) for name in common},
        missing=tuple(name for name in reference if name not in ours),
        extra=tuple(name for name in ours if name not in reference),
        factor=None if start is None else _factor(ours, reference, start),
    )


def _kind(name: str) -> str:
    """Tensors of a kind are of one size: "gradient:0.weight", "optimizer:0.weight:exp_avg"."""
    first, _, rest = name.partition(":")
    return f"{first}:{rest.rpartition(':')[2]}" if first == "optimizer" else first if rest else ""


def _floors(reference: Mapping[str, NDArray[Any]]) -> dict[str, float]:
    """By kind, the length below which a tensor is nothing but rounding errors of the others."""
    squares: dict[str, float] = {}
    for name, each in reference.items():
        finite = np.where(np.isfinite(each), each, 0).astype(np.float64)
        squares[_kind(name)] = squares.get(_kind(name), 0.0) + float(np.sum(finite**2))
    return {kind: _NOTHING * math.sqrt(square) for kind, square in squares.items()}


def _relative(ours: NDArray[Any], reference: NDArray[Any], floor: float) -> float:
    if ours.shape != reference.shape:
        return math.inf
    same = (ours == reference) | ((ours != ours) & (reference != reference))  # infinities, as in masks; not a number
    ours, reference = np.where(same, 0, ours), np.where(same, 0, reference)
    apart = float(np.linalg.norm(np.asarray(ours, np.float64) - reference))
    size = float(np.linalg.norm(np.asarray(reference, np.float64)))
    if not math.isfinite(apart):
        return math.inf
    size = max(size, floor)
    return apart / size if size > 0 else apart


def _factor(
    ours: Mapping[str, NDArray[Any]], reference: Mapping[str, NDArray[Any]], start: Mapping[str, NDArray[Any]]
) -> float | None:
    """Least squares: ours - start = factor * (reference - start)."""
    names = [name for name in reference if name in ours and name in start]
    if any(ours[name].shape != reference[name].shape for name in names) or not names:
        return None
    moved = np.concatenate([np.ravel(ours[name] - start[name]) for name in names]).astype(np.float64)
    should = np.concatenate([np.ravel(reference[name] - start[name]) for name in names]).astype(np.float64)
    length = float(should @ should)
    if length == 0.0 or not np.all(np.isfinite(moved)):
        return None
    factor = float(moved @ should) / length
    left = float(np.linalg.norm(moved - factor * should))
    return factor if left <= _EXACT * float(np.linalg.norm(should)) else None
