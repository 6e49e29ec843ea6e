"""Directions in the space of weights, and points along them.

A direction of standard normal numbers says little about a network whose layers have different sizes: the same step is
long for one layer and short for another, and rescaling a layer before a batch norm, which changes no output, changes
what is seen. **Filter normalisation** makes the part of each filter as long as the filter itself,

    d_f <- d_f * |w_f| / |d_f|,    and 0 for biases and norms (tensors of one dimension)

(Li et al. 2018, arXiv 1712.09913). `raw` has the whole direction as long as the weights as a whole, and nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paceline.curvature.random_vectors import Stream, random_stream
from paceline.curvature.weights import Slice
from paceline.landscape.kept_parts import blocks
from paceline.records.errors import PacelineError

_TINY = 1e-10
"""Added to the length of a filter's direction, as in Li et al.'s own code."""

_PARALLEL = 0.999
"""Two directions with a cosine above that, 2.6 degrees, are taken for one."""

IN_WORDS = {
    "filter": "random, each filter's part as long as the filter; biases and norms stay (Li et al. 2018)",
    "raw": "random, as long as the weights as a whole",
    "pca": "the run's two main axes, in units of the weights",
}


def random_direction(weights: Tensor, layout: Sequence[Slice], *, kind: str, seed: int, number: int) -> Tensor:
    """(P,) a direction of standard normal numbers, scaled as `kind` says.

    Args:
        weights: (P,) the point that it starts from.
        layout: where each parameter stands in it.
        kind: `filter` or `raw`.
        seed, number: directions of one seed and different numbers are independent; the same for every world size.
    """
    direction = torch.empty_like(weights)
    for index, place in enumerate(layout):
        generator = random_stream(Stream.DIRECTION, seed, number, index)
        drawn = torch.from_numpy(generator.standard_normal(place.stop - place.start))
        if kind == "filter":
            drawn = _by_filter(drawn, weights[place.start : place.stop].to("cpu", torch.float64), place.shape)
        direction[place.start : place.stop] = drawn.to(direction)
    if kind == "raw":
        direction.mul_(float(weights.double().norm() / direction.double().norm()))
    return direction


def require_plane(weights: Tensor, layout: Sequence[Slice], *, kind: str, seed: int) -> None:
    """Refuse two directions that span no plane: their surface would show one line over and over.

    Raises:
        PacelineError: they are all but parallel.
    """
    one, two = (random_direction(weights, layout, kind=kind, seed=seed, number=number).double() for number in (0, 1))
    found = float(one @ two / (one.norm() * two.norm()))
    if abs(found) <= _PARALLEL:
        return
    why, hint = f"their cosine is {found:.6f}", "--measure line, along the one"
    if kind == "filter":
        why += "; of a filter or row of one weight, filter normalisation leaves only the sign to chance"
        hint = f"--directions raw; or {hint}"
    elif len(weights) > 1:
        hint = f"--seed {seed + 1}; or {hint}"
    raise PacelineError("the two directions of the surface are parallel", why=why, hint=hint)


def require_length(weights: Tensor, layout: Sequence[Slice], kind: str) -> None:
    """Refuse directions that lead nowhere.

    Raises:
        PacelineError: all weights that directions of this `kind` would move are 0, or there are none.
    """
    moved = [place for place in layout if kind == "raw" or len(place.shape) >= 2]
    if any(bool(weights[place.start : place.stop].any()) for place in moved):
        return
    if kind == "raw":
        raise PacelineError("the directions have length 0", why="all weights are 0, and a direction is as long as they")
    raise PacelineError(
        "the directions have length 0",
        why="each filter's part is as long as the filter, biases and norms stay, and all other weights are 0 or absent",
        hint="--directions raw",
    )


def _by_filter(drawn: Tensor, weights: Tensor, shape: tuple[int, ...]) -> Tensor:
    if len(shape) < 2:
        return torch.zeros_like(drawn)
    drawn, weights = drawn.view(shape[0], -1), weights.view(shape[0], -1)
    lengths = weights.norm(dim=1, keepdim=True) / (drawn.norm(dim=1, keepdim=True) + _TINY)
    scaled: Tensor = (drawn * lengths).flatten()
    return scaled


def step(point: Tensor, axes: NDArray[Any], coordinates: Sequence[float]) -> Tensor:
    """`point` (P,) moved by the sum of coordinate * axis, in place; axes beyond the coordinates are left out.

    Args:
        point: (P,) moved.
        axes: (k, P) may be mapped from a file, so that no rank holds a copy of them.
        coordinates: k at most.
    """
    for row, coordinate in zip(axes, coordinates, strict=False):
        for block in blocks(len(point)) if coordinate else ():
            point[block].add_(torch.from_numpy(np.array(row[block])).to(point), alpha=float(coordinate))
    return point
