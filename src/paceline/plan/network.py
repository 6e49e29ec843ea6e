"""From timed all-reduces to a link: latency, bandwidth, and what a machine moves in all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.plan.collectives import Link, ring
from paceline.records.errors import PacelineError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_FAR = 14.0
"""A logarithm so large that what it belongs to plays no part."""
_CONVINCING = 0.6


@dataclass(frozen=True)
class Timed:
    """One timed all-reduce: ranks of one machine (or with a link each), bytes, and the median of its times."""

    ranks: int
    size_bytes: int
    seconds: float


@dataclass(frozen=True)
class FittedLink:
    """A link with its fit.

    Attributes:
        link: the best.
        worst: the largest relative error at a timed point.
        determination: R^2 of the logarithms of times.
    """

    link: Link
    worst: float
    determination: float


def fit_link(rows: Sequence[Timed], *, one_machine: bool) -> FittedLink:
    """Fit a ring's cost to timed all-reduces, by least squares of relative errors.

    Args:
        rows: at least two sizes; with `one_machine`, two numbers of ranks tell links from memory.
        one_machine: all ranks share a machine's memory.

    Raises:
        PacelineError: fewer than two sizes, or no more than one rank.
    """
    usable = [row for row in rows if row.ranks > 1 and row.seconds > 0]
    if len({row.size_bytes for row in usable}) < 2:
        raise PacelineError(
            "a network cannot be known from all-reduces of one size",
            why="small ones show its latency, large ones its bandwidth",
            hint="paceline plan speed --probe",
        )
    from scipy.optimize import least_squares

    shares = one_machine and len({row.ranks for row in usable}) > 1
    seconds = np.log([row.seconds for row in usable])
    small, large = min(usable, key=_size), max(usable, key=_size)
    latency = small.seconds / (2 * (small.ranks - 1))
    bandwidth = 2 * (large.ranks - 1) / large.ranks * large.size_bytes / large.seconds

    def link(x: Floats) -> Link:
        shared = bandwidth * float(np.exp(x[2])) if shares else float("inf")
        return Link(latency * float(np.exp(x[0])), bandwidth * float(np.exp(x[1])), shared)

    def residuals(x: Floats) -> Floats:
        here = link(x)
        fitted: Floats = np.log([ring(row.ranks, row.size_bytes, here) for row in usable])
        return fitted - seconds

    def best_from(*starts: float) -> Any:
        many = [least_squares(residuals, [0.0, 0.0, start], loss="soft_l1", f_scale=0.1) for start in starts]
        return min(many, key=lambda result: result.cost)

    best = best_from(_FAR)
    if shares:
        sharing = best_from(0.0, 1.0)
        # Noise always finds some use for one more number; it has to explain a good part of what was left.
        best = sharing if sharing.cost < _CONVINCING * best.cost else best
    errors = residuals(best.x)
    spread = float(((seconds - seconds.mean()) ** 2).sum())
    return FittedLink(
        link=link(best.x),
        worst=float(np.abs(np.expm1(errors)).max()),
        determination=1 - float((errors**2).sum()) / spread if spread else 1.0,
    )


def _size(row: Timed) -> int:
    return row.size_bytes
