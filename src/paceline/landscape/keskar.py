"""Keskar's sharpness: how much the loss can rise in a small box around the weights.

    phi = 100 * (max f(x + A y) - f(x)) / (1 + f(x))    over |y_i| <= epsilon * (|(A^+ x)_i| + 1)

(Keskar et al. 2017, arXiv 1609.04836, metric 2.1), with A the identity, or a random matrix of p columns, so that the
box lies in a random subspace.

**The search.** L-BFGS-B as in the paper, but in z = y / (half width of the box): unscaled, its stopping rules see a box
of 1e-3 as nothing. At y = 0 of a minimum the gradient vanishes and the search would not move, so it begins at random
points inside the box, several of them. `ftol` is 0 for the same reason: what rises is small beside the loss. The slope
is scaled to a mean of 1, so that the first step takes most coordinates to a side of the box: scaled by its largest
coordinate, as would be natural for few of them, ten iterations for a CNN of 0.4 M weights ended at a ninth of the rise.

**A lower bound.** The maximum of a function that is not concave is found only if one is lucky; the largest of a few
starts is reported as what it is.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import optimize
from torch import Tensor

from paceline.curvature.operator import Objective
from paceline.curvature.random_vectors import Stream, random_stream

Floats = NDArray[np.float64]

ITERATIONS = 10
"""Of L-BFGS-B, as in the paper."""
MOST = 2 * ITERATIONS + 5
"""Gradients of one search: without a limit a line search goes on where only rounding is left of the rise."""
SUBSPACE = 100
"""Columns of the random A, as in the paper."""
_BLOCK_BYTES = 1 << 26
_KEEP_BYTES = 1 << 29
"""A is kept in memory up to that size, and made anew for each product beyond it."""


class Identity:
    """A = 1: y -> A y and its counterparts, for a box.

    Args:
        like: a point.
    """

    def __init__(self, like: Tensor) -> None:
        self.size = len(like)
        self._like = like

    def apply(self, y: Floats) -> Tensor:
        """A y (P,)."""
        return torch.from_numpy(y).to(self._like)

    def transposed(self, gradient: Tensor) -> Floats:
        """A^T g."""
        return _wide(gradient)

    def inverse(self, x: Tensor) -> Floats:
        """A^+ x."""
        return _wide(x)


class RandomSubspace:
    """A = P x p standard normal numbers. The paper says no more than that A is random; this makes numbers of its size.

    Args:
        like: a point.
        columns: p, at most P.
        seed: the same A for the same seed on all ranks.
    """

    def __init__(self, like: Tensor, columns: int, seed: int) -> None:
        self.size = columns
        self._like, self._seed = like, seed
        self._rows = max(1, _BLOCK_BYTES // (8 * columns))
        self._kept: list[tuple[slice, Tensor]] | None = None
        if len(like) * columns * 4 <= _KEEP_BYTES:
            self._kept = list(self._made())

    def _made(self) -> Iterator[tuple[slice, Tensor]]:
        for number, start in enumerate(range(0, len(self._like), self._rows)):
            rows = slice(start, min(start + self._rows, len(self._like)))
            generator = random_stream(Stream.SUBSPACE, self._seed, number)
            drawn = generator.standard_normal((rows.stop - rows.start, self.size), dtype=np.float32)
            yield rows, torch.from_numpy(drawn)

    def _blocks(self) -> Iterable[tuple[slice, Tensor]]:
        return self._made() if self._kept is None else self._kept

    def apply(self, y: Floats) -> Tensor:
        """A y (P,)."""
        moved = torch.empty_like(self._like)
        for rows, block in self._blocks():
            moved[rows] = (block.to(moved.dtype) @ torch.from_numpy(y).to(moved.dtype)).to(moved)
        return moved

    def transposed(self, gradient: Tensor) -> Floats:
        """A^T g."""
        total = torch.zeros(self.size, dtype=torch.float64)
        for rows, block in self._blocks():
            total += (block.to(gradient.dtype).T @ gradient[rows].cpu()).double()
        return total.numpy()

    def inverse(self, x: Tensor) -> Floats:
        """A^+ x = (A^T A)^-1 A^T x."""
        gram = torch.zeros(self.size, self.size, dtype=torch.float64)
        for _, block in self._blocks():
            wide = block.double()
            gram += wide.T @ wide
        solved: Floats = np.linalg.solve(gram.numpy(), self.transposed(x.double()))
        return solved


Embedding = Identity | RandomSubspace


@dataclass(frozen=True)
class Box:
    """Where the maximum is looked for.

    Attributes:
        embedding: A.
        half: (n,) half widths, epsilon * (|A^+ x| + 1).
    """

    embedding: Embedding
    half: Floats

    @classmethod
    def around(cls, x: Tensor, embedding: Embedding, epsilon: float) -> Box:
        """The box of the paper around x (P,)."""
        return cls(embedding, epsilon * (np.abs(embedding.inverse(x)) + 1.0))


def sharpness(highest: float, at_centre: float) -> float:
    """phi from max f and f(x), in percent."""
    return 100.0 * (highest - at_centre) / (1.0 + at_centre)


class _Enough(Exception):  # noqa: N818  it is no error
    """`MOST` gradients were taken; scipy's own limit waits for the end of a line search."""


def climb(objective: Objective, x: Tensor, box: Box, *, seed: int, start: int) -> float:
    """The highest f that one search has seen in the box; never below that of its start, a lower bound of the maximum.

    Args:
        objective: f; called with points of x's dtype, `MOST` times at most.
        x: (P,) the weights.
        box: around them.
        seed, start: choose the start, a random point inside the box.

    Returns:
        max f, -inf where f was not finite at any point.
    """
    highest = -math.inf
    usual_slope, asked = 0.0, 0

    def descend(z: Floats) -> tuple[float, Floats]:
        nonlocal highest, usual_slope, asked
        if asked == MOST:
            raise _Enough
        asked += 1
        value, gradient = objective(x + box.embedding.apply(z * box.half))
        if not math.isfinite(value):
            return math.inf, np.zeros_like(z)  # the line search steps back from it
        highest = max(highest, value)
        slope = box.embedding.transposed(gradient) * box.half
        usual_slope = usual_slope or float(np.abs(slope).mean())
        scale = 1.0 / usual_slope if usual_slope else 1.0
        return -value * scale, -slope * scale

    begin = random_stream(Stream.BOX_START, seed, start).uniform(-1.0, 1.0, box.embedding.size)
    options: dict[str, Any] = {"maxiter": ITERATIONS, "ftol": 0.0, "gtol": 0.0, "maxfun": MOST, "maxls": 8}
    bounds = optimize.Bounds(-1.0, 1.0)
    with contextlib.suppress(_Enough):
        optimize.minimize(descend, begin, method="L-BFGS-B", jac=True, bounds=bounds, options=options)
    return highest


def _wide(vector: Tensor) -> Floats:
    wide: Floats = vector.detach().cpu().double().numpy()
    return wide
