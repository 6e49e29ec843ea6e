"""The trace of a symmetric operator by random probes, with its standard error.

    tr H = E[z^T H z]    for probes z with E[z z^T] = identity (Hutchinson 1990)

With Rademacher probes (each number -1 or 1) the variance of a sample is 2 (|H|_F^2 - sum_i H_ii^2): nothing for a
diagonal matrix, and never more than the 2 |H|_F^2 of Gaussian probes.

**When to stop.** At a stated error, not when the running mean changes little: that happens by chance after few probes,
whatever the error. A standard error is small by chance, too, and whoever stops at the first probe after which it is
small enough stops where it is too small: intervals of 95 % then held 89 %. So there are few looks, the first after 32
probes, and the interval is the one that holds at all of them together: Student's, each look with its equal part of the
5 % (Bonferroni). Samples with one dominating eigenvalue, which are as skewed as a chi-square of one degree of freedom,
need that reserve (measured in tests/curvature/test_trace.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from scipy.special import stdtrit

from paceline.curvature.operator import Operator, Space, applied
from paceline.curvature.random_vectors import probe

FIRST_LOOK, LATER = 32, 1.5
"""Probes before the first look, and how many times as many there are at each later one."""
CONFIDENCE = 0.95
_NORMAL = 1.96  # half the width of a 95 % interval, in standard errors that are known


@dataclass(frozen=True)
class Probing:
    """When there are enough probes.

    Attributes:
        relative_error: stop when the 95 % interval reaches no farther than 1.96 times this share of the mean on either
            side, as that of a standard error of this share does; 0 < value < 1.
        max_probes: stop there in any case; 8 or more, since a standard error of fewer samples says little.
    """

    relative_error: float = 0.05
    max_probes: int = 100

    @cached_property
    def looks(self) -> tuple[int, ...]:
        """After how many probes it is decided whether there are enough, ascending; the last are `max_probes`."""
        found, probes = [], float(FIRST_LOOK)
        while round(probes) < self.max_probes:
            found.append(round(probes))
            probes *= LATER
        return (*found, self.max_probes)


@dataclass(frozen=True)
class Estimate:
    """What is known after some probes.

    Attributes:
        mean: the estimate of the trace.
        standard_error: of the mean, from the samples' spread; NaN for a single one.
        half_width: of the 95 % interval around the mean, which holds whenever it is looked at; NaN for a single one.
        samples: z^T H z of each probe, in order.
        converged: the interval is as narrow as was asked for, and this is a look.
    """

    mean: float
    standard_error: float
    half_width: float
    samples: tuple[float, ...]
    converged: bool

    @property
    def probes(self) -> int:
        """How many there were."""
        return len(self.samples)


def estimate(samples: Sequence[float], probing: Probing) -> Estimate:
    """Mean, standard error and interval of samples, one or more."""
    count = len(samples)
    mean = math.fsum(samples) / count
    if count == 1:
        return Estimate(mean, math.nan, math.nan, tuple(samples), converged=False)
    variance = math.fsum((sample - mean) ** 2 for sample in samples) / (count - 1)
    error = math.sqrt(variance / count)
    half = error * float(stdtrit(count - 1, 1 - (1 - CONFIDENCE) / 2 / len(probing.looks)))
    enough = half <= _NORMAL * probing.relative_error * abs(mean)
    return Estimate(mean, error, half, tuple(samples), converged=count in probing.looks and enough)


def trace_sample(apply: Operator, space: Space, seed: int, number: int) -> float:
    """z^T H z of probe z, which depends on (seed, number) only.

    Args:
        apply: H times a vector; `operator.weighted` makes the reparametrisation-aware form of one.
        space: of its vectors.
        seed, number: of the probe.

    Raises:
        PacelineError: H times a vector is not finite.
    """
    vector = probe(space, seed, number)
    return float(torch.dot(vector.to(torch.float64), applied(apply, vector).to(torch.float64)))


def probes(sample: Callable[[int], float], probing: Probing) -> Iterator[Estimate]:
    """The estimate after each of `sample(0)`, `sample(1)`, ..., until it has converged or `max_probes` are made."""
    samples: list[float] = []
    for number in range(probing.max_probes):
        samples.append(sample(number))
        found = estimate(samples, probing)
        yield found
        if found.converged:
            return
