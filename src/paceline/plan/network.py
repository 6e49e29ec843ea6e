"""From timed all-reduces to a link: latency, bandwidth, and what a machine moves in all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.plan.collectives import Link, Network, ring
from paceline.records.errors import PacelineError
from paceline.records.plan_results import NetworkFacts, finite

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_FAR = 14.0
"""A logarithm so large that what it belongs to plays no part."""
_CONVINCING = 0.6
_NOTHING = 1e-8
"""Cost of a fit that is exact but for rounding, of which a part explains nothing."""
_LEAST_NOISE = 0.02
"""Of a timed all-reduce, relative: few can look as if they had none."""


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
        rows: that went in.
    """

    link: Link
    worst: float
    rows: tuple[Timed, ...]

    def drawn(self, generator: np.random.Generator) -> Link:
        """A link fitted to the fitted times with noise as large as the residuals: how far it is known."""
        fitted: Floats = np.array([ring(row.ranks, row.size_bytes, self.link) for row in self.rows])
        residuals = np.log([row.seconds for row in self.rows]) - np.log(fitted)
        left = max(1, len(self.rows) - 3)
        noise = max(_LEAST_NOISE, float(np.sqrt((residuals**2).sum() / left)))
        times = fitted * np.exp(noise * generator.standard_normal(len(fitted)))
        again = [replace(row, seconds=float(time)) for row, time in zip(self.rows, times, strict=True)]
        return fit_link(again, self.link.processors).link


def fit_link(rows: Sequence[Timed], processors: float | None = None) -> FittedLink:
    """Fit a ring's cost to timed all-reduces, by least squares of relative errors.

    Args:
        rows: of ranks of one machine: at least two sizes; two numbers of ranks tell links from the memory they share.
        processors: ranks that its cores serve at once; None where devices send, or it is not known.

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

    shares = len({row.ranks for row in usable}) > 1
    seconds = np.log([row.seconds for row in usable])
    small, large = (choose(usable, key=lambda row: row.size_bytes) for choose in (min, max))
    latency = small.seconds / (2 * (small.ranks - 1))
    bandwidth = 2 * (large.ranks - 1) / large.ranks * large.size_bytes / large.seconds

    def link(x: Floats) -> Link:
        factors = np.exp(x).tolist()
        shared = bandwidth * factors[2] if shares else math.inf
        return Link(latency * factors[0], bandwidth * factors[1], shared, processors or math.inf)

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
        best = sharing if sharing.cost + _NOTHING < _CONVINCING * best.cost else best
    return FittedLink(
        link=link(best.x),
        worst=float(np.abs(np.expm1(residuals(best.x))).max()),
        rows=tuple(usable),
    )


def network_facts(network: Network, fitted: FittedLink | None) -> NetworkFacts:
    """The record of a network.

    Args:
        network: any.
        fitted: how a probe found its link; None where the network was given.
    """
    link, outer = network.link, network.outer
    return NetworkFacts(
        source="given" if fitted is None else "probe",
        latency_s=link.latency_s,
        bandwidth_bytes_per_s=link.bandwidth,
        shared_bytes_per_s=finite(link.shared),
        per_node=network.per_node,
        tree=network.tree,
        outer_latency_s=outer.latency_s if outer else None,
        outer_bandwidth_bytes_per_s=outer.bandwidth if outer else None,
        worst_error=fitted.worst if fitted else None,
        probed=[[float(row.ranks), float(row.size_bytes), row.seconds] for row in fitted.rows] if fitted else [],
        processors=finite(link.processors),
    )


def network_of(facts: NetworkFacts) -> Network:
    """The network of a record."""
    link = Link(
        facts.latency_s or 0.0,
        facts.bandwidth_bytes_per_s or math.inf,
        facts.shared_bytes_per_s or math.inf,
        facts.processors or math.inf,
    )
    outer = None
    if facts.outer_latency_s is not None and facts.outer_bandwidth_bytes_per_s is not None:
        outer = Link(facts.outer_latency_s, facts.outer_bandwidth_bytes_per_s)
    return Network(link, facts.per_node, outer, facts.tree)
