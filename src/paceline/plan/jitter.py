"""Jitter: a step waits for the slowest of its k workers. How long is known from single steps of one worker.

The median of the slowest of k is the quantile 2^(-1/k) of one worker's times. Where more workers are asked for than
there are steps to show it, the times above their 90 % quantile are followed by a generalised Pareto distribution
(Pickands 1975), fitted by probability-weighted moments, which few values suffice for (Hosking and Wallis 1987):

    P(above the start by more than y) = 0.1 (1 + shape y / scale)^(-1 / shape)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from paceline.records.plan_results import JitterFacts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LEAST_TIMES = 20
"""Steps below which nothing is said."""
LEAST_FOR_TAIL = 50
"""Steps below which no tail is fitted: fewer than five would lie in it."""
_KNOTS = tuple(2**power for power in range(17))
"""Workers at which it is computed; between them it is a straight line over log(workers), beyond it stays."""
_SEEN = 0.14
"""Workers a step: some five steps then lie above the quantile that the slowest of so many workers is at."""
_TAIL = 0.1
_HEAVIEST = 0.5
"""Shape of the heaviest tail that has a variance: single interruptions are no distribution."""


class Jitter:
    """How much longer the slowest of k workers takes than one of them, in the median.

    Args:
        ratios: (n,) times of single steps of one worker over their median.
        facts: of a record in place of these, though it cannot be drawn anew; None without.

    Attributes:
        facts: all that it says, for the record.
    """

    def __init__(self, ratios: Floats | Sequence[float] = (), facts: JitterFacts | None = None) -> None:
        self._ratios = np.sort(np.asarray(ratios, dtype=np.float64))
        self.facts = facts or _facts(self._ratios)

    def __call__(self, workers: int) -> float:
        """As a part of the time of a step's computation."""
        if workers < 2 or not self.facts.waits:
            return 0.0
        return float(np.interp(math.log2(workers), range(len(self.facts.waits)), self.facts.waits))

    def redrawn(self, generator: np.random.Generator) -> Jitter:
        """From steps drawn from these, with replacement: how far it is known."""
        return Jitter(generator.choice(self._ratios, len(self._ratios))) if len(self._ratios) else self


def _facts(ratios: Floats) -> JitterFacts:
    count = len(ratios)
    if count < LEAST_TIMES:
        return JitterFacts(steps=count, seen=1, tail=False, waits=[])
    seen, tail = max(1, int(_SEEN * count)), count >= LEAST_FOR_TAIL
    start = float(np.quantile(ratios, 1 - _TAIL))
    shape, scale = _pareto(ratios[ratios > start] - start)

    def slowest(workers: int) -> float:
        if tail and workers > seen:
            return start + _quantile(shape, scale, (1 - 0.5 ** (1 / workers)) / _TAIL)
        return float(np.quantile(ratios, 0.5 ** (1 / min(workers, seen))))

    waits = np.array([slowest(workers) for workers in _KNOTS]) - float(np.median(ratios))
    return JitterFacts(steps=count, seen=seen, tail=tail, waits=np.maximum.accumulate(np.maximum(waits, 0.0)).tolist())


def _pareto(above: Floats) -> tuple[float, float]:
    """Shape and scale of a tail.

    Args:
        above: (n,) excesses, ascending, above 0; of none, both are 0.
    """
    if not len(above):
        return 0.0, 0.0
    ranks = (np.arange(1, len(above) + 1) - 0.35) / len(above)
    mean, weighted = float(above.mean()), float(((1 - ranks) * above).mean())
    shape = min(2 - mean / (mean - 2 * weighted), _HEAVIEST)
    return shape, mean * (1 - shape)


def _quantile(shape: float, scale: float, chance: float) -> float:
    """The excess that is passed with that chance."""
    return scale * -math.log(chance) if abs(shape) < 1e-9 else scale / shape * (chance**-shape - 1)
