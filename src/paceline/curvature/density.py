"""How the eigenvalues of a symmetric operator are distributed, by stochastic Lanczos quadrature.

For a unit vector z, m Lanczos steps give nodes theta_i (eigenvalues of the tridiagonal T) and weights w_i (squared
first components of its eigenvectors) with

    z^T H^p z = sum_i w_i theta_i^p    for every p up to 2m - 1

(Golub and Welsch 1969). Averaged over random z this is the density of eigenvalues, whose moments are tr(H^p) / n
(Ubaru, Chen and Saad 2017; for Hessians of networks Ghorbani, Krishnan and Xiao 2019, arXiv 1901.10159). T is
symmetric, so its eigenvalues are computed as such: real, with weights that add up to 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from paceline.curvature.krylov import Floats, Krylov
from paceline.curvature.operator import Operator, Space
from paceline.curvature.vectors import probe
from paceline.records.errors import PacelineError


@dataclass(frozen=True)
class Quadrature:
    """Of one probe.

    Attributes:
        nodes: (m,) in ascending order; fewer than asked for where the probe's Krylov space is smaller.
        weights: (m,) 0 and more, 1 together.
    """

    nodes: Floats
    weights: Floats

    def moment(self, power: int) -> float:
        """z^T H^power z, exact for power <= 2m - 1."""
        return float(np.sum(self.weights * self.nodes**power))


@dataclass(frozen=True)
class Curve:
    """A density on a grid.

    Attributes:
        eigenvalues: (points,) the grid.
        density: (points,) its integral is 1.
        bandwidth: standard deviation of the Gaussian that each node was widened to, in units of eigenvalues. Structure
            finer than that is not shown.
        spread: (points,) standard error over probes of `density`; NaN for a single probe.
    """

    eigenvalues: Floats
    density: Floats
    bandwidth: float
    spread: Floats


def quadratures(
    apply: Operator, space: Space, *, steps: int = 64, probes: int = 8, seed: int = 0, first: int = 0
) -> Iterator[Quadrature]:
    """One quadrature after another, each from `steps` products with H.

    Args:
        apply: H times a vector.
        space: of its vectors; `steps` of them are kept.
        steps: m, 1 or more.
        probes: how many in all, 1 or more.
        seed: probe i depends on (seed, i) only, so those of an interrupted run can be kept and the rest added.
        first: number of the first probe to compute.

    Raises:
        PacelineError: out of range, or H times a vector is not finite.
    """
    if steps < 1 or probes < 1:
        raise PacelineError(f"{steps} steps with {probes} probes", hint="legal: 1 and more of each")
    for number in range(first, probes):
        start = probe(space.size, seed, number, "rademacher", space.dtype, space.device)
        yield quadrature(Krylov(apply, space), start / math.sqrt(space.size), steps)


def quadrature(krylov: Krylov, start: Tensor, steps: int) -> Quadrature:
    """The quadrature for `start` (n,), of length 1; `krylov` is empty."""
    krylov.advance(start)
    while len(krylov) < steps and not krylov.invariant:
        krylov.advance(krylov.following())
    nodes, columns = krylov.eigen()
    return Quadrature(nodes, columns[0] ** 2)


def curve(
    found: Sequence[Quadrature], *, points: int = 1001, bandwidth: float | None = None, margin: float = 4.0
) -> Curve:
    """The mean density of some quadratures, each node widened to a Gaussian.

    Args:
        found: of one operator, one or more.
        points: of the grid, 2 or more.
        bandwidth: above 0; None takes 1/200 of the range of all nodes.
        margin: how far the grid goes beyond the nodes, in bandwidths; within 4 lies all but 6e-5 of a Gaussian.

    Raises:
        PacelineError: no quadrature, or a number out of range.
    """
    if not found:
        raise PacelineError("a density needs one probe at least")
    if points < 2 or (bandwidth is not None and not bandwidth > 0):
        raise PacelineError(
            f"a density on {points} points with a bandwidth of {bandwidth}",
            hint="legal: 2 points and more, a bandwidth above 0",
        )
    low = min(float(each.nodes[0]) for each in found)
    high = max(float(each.nodes[-1]) for each in found)
    width = bandwidth or (high - low) / 200 or max(abs(high), 1.0) / 200
    grid = np.linspace(low - margin * width, high + margin * width, points)
    each = np.stack([_widened(one, grid, width) for one in found])
    spread = each.std(axis=0, ddof=1) / math.sqrt(len(found)) if len(found) > 1 else np.full(points, math.nan)
    return Curve(grid, each.mean(axis=0), width, spread)


def _widened(one: Quadrature, grid: Floats, width: float) -> Floats:
    heights = np.exp(-0.5 * ((grid[:, None] - one.nodes) / width) ** 2) / (width * math.sqrt(2 * math.pi))
    total: Floats = heights @ one.weights
    return total
