"""The path of a run through the space of weights, seen in the plane in which it moves most.

The rows D = [w_t - w_T] for the checkpoints t before the last one T have the singular value decomposition D = U S V^T;
the first two rows of V^T span the plane, and the share of an axis is S_i^2 / sum S^2 (Li et al. 2018, section 7). D has
few rows and as many columns as there are weights, so the decomposition is made from D D^T, which is small.

Coordinates are least squares, <w_t - w_T, v_i> with orthonormal v_i: the place in the plane that is nearest to w_t.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST = 3
"""Checkpoints that make a plane."""
_BLOCK = 1 << 18
_MARGIN = 0.3


@dataclass(frozen=True)
class Path:
    """A path and its plane.

    Attributes:
        axes: (2, P) orthonormal, in the dtype of the weights.
        xy: (k, 2) coordinates; the last is (0, 0).
        variance: (k - 1,) share of each axis, in descending order.
    """

    axes: NDArray[Any]
    xy: Floats
    variance: Floats


def principal_plane(weights: NDArray[Any]) -> Path:
    """The plane of a path.

    Args:
        weights: (k, P) k >= 3 checkpoints in order; may be mapped from a file, it is read in blocks.
    """
    count, size = weights.shape
    last = weights[-1]
    gram = np.zeros((count - 1, count - 1))
    for block in _blocks(size):
        rows = weights[:-1, block].astype(np.float64) - last[block]
        gram += rows @ rows.T
    squares, vectors = np.linalg.eigh(gram)
    squares, vectors = np.maximum(squares[::-1], 0.0), vectors[:, ::-1]
    axes = np.zeros((2, size), dtype=weights.dtype)
    lengths = np.sqrt(squares[:2])
    usable = lengths > 1e-7 * max(float(lengths[0]), np.finfo(np.float64).tiny)
    for block in _blocks(size):
        rows = weights[:-1, block].astype(np.float64) - last[block]
        axes[usable, block] = (vectors[:, :2].T[usable] @ rows) / lengths[usable, None]
    xy = np.zeros((count, 2))
    for block in _blocks(size):
        rows = weights[:-1, block].astype(np.float64) - last[block]
        xy[:-1] += rows @ axes[:, block].astype(np.float64).T
    total = squares.sum()
    return Path(axes, xy, squares / total if total else squares)


def window(values: Floats, span: float, points: int) -> Floats:
    """(points,) coordinates along one axis that show all of `values` with a margin; `span` widens or narrows it."""
    low, high = float(values.min()), float(values.max())
    half = 0.5 * (high - low) * (1 + 2 * _MARGIN) * span or span
    return np.linspace(0.5 * (low + high) - half, 0.5 * (low + high) + half, points)


def _blocks(size: int) -> list[slice]:
    return [slice(start, min(start + _BLOCK, size)) for start in range(0, size, _BLOCK)]
