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
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paceline.curvature.krylov import Floats, Krylov
from paceline.curvature.operator import Operator, Space
from paceline.curvature.random_vectors import probe

_POINTS = 1001
_MARGIN = 4.0
"""How far the grid goes beyond the nodes, in bandwidths; within 4 lies all but 6e-5 of a Gaussian."""


@dataclass(frozen=True)
class Quadrature:
    """Of one probe.

    Attributes:
        nodes: (m,) in ascending order; fewer than asked for where the probe's Krylov space is smaller.
        weights: (m,) 0 and more, 1 together.
    """

    nodes: Floats
    weights: Floats


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


def quadrature(apply: Operator, space: Space, *, steps: int, seed: int, number: int) -> Quadrature:
    """The quadrature of one probe.

    Args:
        apply: H times a vector.
        space: of its vectors; `steps` of them are kept.
        steps: m, products with H at most, 1 or more.
        seed, number: the probe depends on these only, so those of an interrupted run can be kept and others added.

    Raises:
        PacelineError: H times a vector is not finite.
    """
    krylov = Krylov(apply, space)
    krylov.advance(probe(space, seed, number) / math.sqrt(space.size))
    while len(krylov) < steps and not krylov.invariant:
        krylov.advance(krylov.following())
    nodes, columns = krylov.eigen()
    return Quadrature(nodes, columns[0] ** 2)


def curve(found: Sequence[Quadrature]) -> Curve:
    """The mean density of one or more quadratures of one operator, each node widened to a Gaussian.

    The bandwidth is 1/200 of the range of all nodes.
    """
    low = min(float(each.nodes[0]) for each in found)
    high = max(float(each.nodes[-1]) for each in found)
    width = (high - low) / 200 or max(abs(high), 1.0) / 200
    grid = np.linspace(low - _MARGIN * width, high + _MARGIN * width, _POINTS)
    each = np.stack([_widened(one, grid, width) for one in found])
    spread = each.std(axis=0, ddof=1) / math.sqrt(len(found)) if len(found) > 1 else np.full(_POINTS, math.nan)
    return Curve(grid, each.mean(axis=0), width, spread)


def _widened(one: Quadrature, grid: Floats, width: float) -> Floats:
    heights = np.exp(-0.5 * ((grid[:, None] - one.nodes) / width) ** 2) / (width * math.sqrt(2 * math.pi))
    total: Floats = heights @ one.weights
    return total
