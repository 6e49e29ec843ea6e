"""The straight line between two networks, and the barrier on it.

    L(t) = loss at (1 - t) * a + t * b,    barrier = max over 0 <= t <= 1 of L(t) - ((1 - t) * L(0) + t * L(1))

(Goodfellow et al. 2015, arXiv 1412.6544; Frankle et al. 2020, arXiv 1912.05671). At t = 0 and t = 1 the weights are
exactly those of the two. A barrier says that the two are not joined by a straight line, not that no path joins them:
exchanging hidden units leaves what a network computes and raises a barrier.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]
_BLOCK = 1 << 18


def positions(points: int) -> Floats:
    """`points` numbers from 0 to 1, both among them exactly, and a quarter as many on either side."""
    beyond = points // 4
    line: Floats = np.arange(-beyond, points + beyond, dtype=np.float64) / (points - 1)
    return line


def between(one: Tensor, other: Tensor, t: float) -> Tensor:
    """(1 - t) * one + t * other; exactly one of them at 0 and at 1, which torch's form of it sees to."""
    return torch.lerp(one, other, t)


def move(point: Tensor, other: NDArray[Any], t: float) -> Tensor:
    """`point` (P,) in place to (1 - t) * point + t * other, as `between`; `other` (P,) may be mapped from a file."""
    for start in range(0, len(point), _BLOCK):
        block = point[start : start + _BLOCK]
        block.lerp_(torch.from_numpy(np.array(other[start : start + _BLOCK])).to(block), t)
    return point


def barrier(t: Floats, loss: Floats) -> tuple[float, float]:
    """The barrier and where it is: never below 0, since at the ends the difference is 0.

    Args:
        t: (n,) 0 and 1 among them.
        loss: (n,) likewise.

    Returns:
        NaN for both where a loss between the ends, or at one of them, is no finite number.
    """
    within = (t >= 0) & (t <= 1)
    t, loss = t[within], loss[within]
    if not np.isfinite(loss).all():
        return float("nan"), float("nan")
    above = loss - ((1 - t) * loss[t == 0] + t * loss[t == 1])
    highest = int(np.argmax(above))
    return float(above[highest]), float(t[highest])
