"""What branches from one checkpoint say: which batch still makes as much of each sample.

From the weights of one moment, short trainings go on at several batches with rates scaled by one rule, all over the
same number of samples. Below the critical batch of that moment they end at the same loss; above it, larger batches end
higher (Merrill et al. 2025, arXiv 2505.23971, who found that the noise scale does not tell this reliably).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

TOLERANCE = 0.01
"""Of the loss, relative: less is no loss."""


@dataclass(frozen=True)
class Settled:
    """What the branches settle.

    Attributes:
        largest: the largest batch that still ends within the tolerance, and so do all below it.
        limit: the loss up to which a batch is within it.
        bounded: whether a larger batch was tried and ended higher; if not, the true value may be larger.
    """

    largest: int
    limit: float
    bounded: bool


def settle(losses: Mapping[int, Sequence[float]], tolerance: float = TOLERANCE) -> Settled:
    """Find the largest batch that loses nothing.

    Args:
        losses: for each batch the losses of its branches, one a seed; a branch that diverged is NaN.
        tolerance: relative to the loss at the smallest batch. Where seeds differ by more, twice the standard error of
            the difference counts instead.
    """
    batches = sorted(losses)
    base = list(losses[batches[0]])
    reference = statistics.fmean(base)
    largest, limit, bounded = batches[0], reference * (1 + tolerance), False
    for batch in batches[1:]:
        own = list(losses[batch])
        limit = reference + max(tolerance * abs(reference), 2 * _error(base, own))
        if any(math.isnan(loss) for loss in own) or statistics.fmean(own) > limit:
            bounded = True
            break
        largest = batch
    return Settled(largest, limit, bounded)


def _error(one: Sequence[float], other: Sequence[float]) -> float:
    """Standard error of the difference of two means; 0 where nothing was repeated."""
    parts = [statistics.variance(group) / len(group) for group in (one, other) if len(group) > 1]
    return math.sqrt(sum(parts)) if len(parts) == 2 and not any(math.isnan(part) for part in parts) else 0.0


def samples_of_a_branch(run_samples: float, branches: int, share: float = 0.2) -> int:
    """Samples for each branch, so that all together take `share` of what the run took."""
    return max(1, int(share * run_samples / branches))
