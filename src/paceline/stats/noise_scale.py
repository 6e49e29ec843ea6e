"""How noisy gradients are: the gradient noise scale, from norms that data-parallel training has anyway.

A gradient over n samples is the true gradient G plus noise of covariance Sigma / n. The **noise scale** is the batch at
which both are equally long,

    B_noise = tr(Sigma) / |G|^2        (McCandlish et al. 2018, arXiv 1812.06162, their B_simple)

A step's batch consists of groups: a rank's micro-batches. With means g_j over n_j samples, their mean g over all
B = sum n_j, and J groups, E|g_j|^2 = |G|^2 + tr(Sigma) / n_j and E|g|^2 = |G|^2 + tr(Sigma) / B. Hence, without bias,

    tr(Sigma) ~ (sum_j n_j |g_j|^2 - B |g|^2) / (J - 1)        the variance between groups
    |G|^2     ~ |g|^2 - tr(Sigma) / B                          for equal groups the mean of g_i . g_j over i != j

Groups of one sample are the per-example form; there the first line is the trace of the sample covariance.

**Means over tokens, or by weights.** A sample has c tokens, and a gradient is a sum over tokens divided by their
number, a ratio of two random numbers. Then g_j has the noise tau / c_j with c_j tokens in the group, tau the variance
of a token's gradient, and g = sum_j c_j g_j / C. The same lines hold with counts in place of samples,

    tau   ~ (sum_j c_j |g_j|^2 - C |g|^2) / (J - 1)
    |G|^2 ~ |g|^2 - tau / C

and B_noise in samples is (tau / mean tokens of a sample) / |G|^2. Weighting groups by their samples instead takes the
spread of their lengths for noise. Where tokens of one sample resemble each other, its noise grows faster than c, and
groups of a few samples then give too little.

**Single steps say little**: the estimate of |G|^2 is often negative, so neither it nor the ratio is cut off or
averaged. Both are averaged over steps first, and only then divided. The interval is Fieller's for a ratio of means,
over batches of steps, because successive steps resemble each other. Where the mean of |G|^2 cannot be told from 0, it
has no upper end.

**Samples drawn without replacement** from n: what is estimated for |G|^2 is then |G_n|^2 - tr(Sigma) / n, the gradient
of the population, not of the data set. Once the noise scale reaches n, nothing but noise is left, and the number means
only "as large as the data set, or larger".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from paceline.records.errors import PacelineError
from paceline.records.gradients import StepNorms
from paceline.stats.intervals import Interval, Joint, quantile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LEAST_STEPS = 20
"""Fewer say nothing: the spread over steps is not known."""
_MOST_BATCHES, _LEAST_BATCHES = 50, 10


@dataclass(frozen=True)
class NoiseScale(Interval):
    """What a number of steps says of tr(Sigma) / |G|^2, in samples.

    The value is infinite where the mean of |G|^2 is not above 0, the upper end where it cannot be told from 0.

    Attributes:
        noise: mean estimate of tr(Sigma), 0 or more.
        signal: mean estimate of |G|^2; may be below 0.
        steps: that went in.
        confidence: of the interval.
        samples: in the data set; None where it is not known, or where samples are always fresh.
    """

    noise: float
    signal: float
    steps: int
    confidence: float
    samples: int | None = None

    @property
    def exhausts_data(self) -> bool:
        """Whether it is as large as the data set: the value is then no measurement of anything beyond that."""
        return self.samples is not None and self.value >= self.samples

    def __str__(self) -> str:
        if self.exhausts_data:
            return f">= the data set ({self.samples:,} samples)"
        high = f"{self.high:,.0f}" if math.isfinite(self.high) else "no upper end"
        return f"{self.value:,.0f} [{self.low:,.0f}, {high}]"


def split(sizes: Sequence[float], squares: Sequence[float], reduced: float) -> tuple[float, float] | None:
    """Of one step: the estimates of tr(Sigma) and of |G|^2; each may be far from the truth, and below 0.

    The first is the variance of one unit of `sizes`: of a sample, or of a token.

    Args:
        sizes: (J,) what each group's mean is over, above 0: its samples, or what the loss counted.
        squares: (J,) squared norm of each group's mean gradient.
        reduced: squared norm of the mean gradient over all samples, sum_j n_j g_j / B.

    Returns:
        None where it cannot be done: fewer than two groups, or a norm that is no finite number.
    """
    counts, norms = np.asarray(sizes, dtype=np.float64), np.asarray(squares, dtype=np.float64)
    if len(counts) < 2 or not (np.isfinite(norms).all() and math.isfinite(reduced)):
        return None
    batch = float(counts.sum())
    noise = (float(counts @ norms) - batch * reduced) / (len(counts) - 1)
    return noise, reduced - noise / batch


def estimates(rows: Sequence[StepNorms]) -> tuple[list[int], Floats, Floats]:
    """Of recorded steps: their numbers, and the estimates of tr(Sigma) and |G|^2, (n,) each; others are left out.

    tr(Sigma) is that of a sample: where means are over tokens, of as many tokens as a sample has on average.
    """
    kept, samples, counted = [], 0.0, 0.0
    for row in rows:
        sizes = row.samples if row.counts is None else row.counts
        pairs = [(size, square) for size, square in zip(sizes, row.squares, strict=True) if size > 0]
        found = split([size for size, _ in pairs], [square for _, square in pairs], row.reduced)
        if found is not None:
            kept.append((row.step, found))
            samples += sum(row.samples)
            counted += sum(sizes)
    both = np.array([found for _, found in kept], dtype=np.float64).reshape(-1, 2)
    return [step for step, _ in kept], both[:, 0] * (samples / counted if counted else 1.0), both[:, 1]


def noise_scale(noise: Floats, signal: Floats, *, samples: int | None = None, confidence: float = 0.9) -> NoiseScale:
    """The noise scale over some steps, as the ratio of averages.

    Args:
        noise, signal: (steps,) estimates as `split` makes them, in the order of the steps.
        samples: in the data set, when they are drawn without replacement.
        confidence: of the interval, between 0 and 1.

    Raises:
        PacelineError: fewer than `LEAST_STEPS` steps.
    """
    steps = len(noise)
    if steps < LEAST_STEPS:
        raise PacelineError(
            f"{steps} steps are too few for a noise scale",
            why="its interval comes from the spread between steps",
            hint=f"at least {LEAST_STEPS} steps with two groups of samples each",
        )
    top, bottom = float(noise.mean()), float(signal.mean())
    found = fieller(_batched(noise), _batched(signal), confidence)
    return NoiseScale(
        value=max(0.0, top) / bottom if bottom > 0 else math.inf,
        low=found.low,
        high=found.high,
        noise=max(0.0, top),
        signal=bottom,
        steps=steps,
        confidence=confidence,
        samples=samples,
    )


@dataclass(frozen=True)
class Window:
    """A stretch of a run: its first and last step, and the noise scale over it."""

    first: int
    last: int
    found: NoiseScale


def over_training(
    steps: Sequence[int],
    noise: Floats,
    signal: Floats,
    *,
    windows: int = 20,
    samples: int | None = None,
    confidence: float = 0.9,
) -> list[Window]:
    """The noise scale along a run, over windows of equally many recorded steps.

    Args:
        steps: (n,) numbers of the recorded steps, ascending.
        noise, signal: (n,) see `noise_scale`.
        windows: at most so many, each of `LEAST_STEPS` at least; one that would have fewer joins its neighbour.
        samples, confidence: see `noise_scale`.

    Returns:
        none where there are too few steps for one window.
    """
    count = min(windows, len(steps) // LEAST_STEPS)
    if count < 1:
        return []
    edges = np.linspace(0, len(steps), count + 1).round().astype(int)
    return [
        Window(
            int(steps[start]),
            int(steps[stop - 1]),
            noise_scale(noise[start:stop], signal[start:stop], samples=samples, confidence=confidence),
        )
        for start, stop in itertools.pairwise(edges)
    ]


def fieller(top: Floats, bottom: Floats, confidence: float) -> Interval:
    """mean(top) / mean(bottom), which are 0 and more, with its interval by Fieller's theorem.

    Args:
        top, bottom: (n,) pairs, n >= 2, independent of each other pair.
        confidence: between 0 and 1.
    """
    count, pairs = len(top), np.stack([top, bottom])
    return Joint(pairs.mean(1), np.cov(pairs) / count, quantile(confidence, count - 1)).ratio((1, 0), (0, 1))


def _batched(values: Floats) -> Floats:
    """Means over batches of successive steps, 10 to 50 of them."""
    count = max(_LEAST_BATCHES, min(_MOST_BATCHES, len(values) // LEAST_STEPS))
    edges = np.linspace(0, len(values), count + 1).round().astype(int)
    return np.array([values[start:stop].mean() for start, stop in itertools.pairwise(edges)])
