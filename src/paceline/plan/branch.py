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

from paceline.records.errors import Exit, PacelineError

TOLERANCE = 0.01
"""Of the loss, relative: less is no loss."""
SHARE = 0.2
"""Of the samples that the run took: what all branches together take at most."""
LEAST_STEPS = 10
"""Of a branch: over fewer, its loss is that of the checkpoint, whatever the batch."""


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
        losses: for each batch the losses of its branches, one a seed; a branch that diverged is NaN. At the smallest
            batch such a seed is left out, at a larger one it is a loss.
        tolerance: relative to the loss at the smallest batch. Where seeds differ by more, twice the standard error of
            the difference counts instead.

    Raises:
        PacelineError: all branches at the smallest batch diverged: there is nothing to compare with.
    """
    batches = sorted(losses)
    base = [loss for loss in losses[batches[0]] if math.isfinite(loss)]
    if not base:
        raise PacelineError(
            f"every branch at a batch of {batches[0]:,} diverged",
            why="the others are compared with it",
            hint="the run's rate is too large for its weights: branch a run with a lower --lr, or with --clip-norm",
            exit_code=Exit.DIVERGED,
        )
    reference = statistics.fmean(base)
    largest, limit, bounded = batches[0], reference + tolerance * abs(reference), False
    for batch in batches[1:]:
        own = list(losses[batch])
        if not all(math.isfinite(loss) for loss in own):
            bounded = True
            break
        limit = reference + max(tolerance * abs(reference), 2 * _error(base, own))
        if statistics.fmean(own) > limit:
            bounded = True
            break
        largest = batch
    return Settled(largest, limit, bounded)


def _error(one: Sequence[float], other: Sequence[float]) -> float:
    """Standard error of the difference of two means; 0 where either was not repeated."""
    if min(len(one), len(other)) < 2:
        return 0.0
    return math.sqrt(sum(statistics.variance(group) / len(group) for group in (one, other)))


@dataclass(frozen=True)
class Layout:
    """How long branches are.

    Attributes:
        steps: of a branch, by batch, ascending.
        samples: that a branch takes, by batch. They are equal where the batches divide each other or a branch is whole
            epochs; else a branch takes less than one batch fewer than another.
        left_out: batches for which the run was too short.
    """

    steps: Mapping[int, int]
    samples: Mapping[int, int]
    left_out: tuple[int, ...] = ()


def lay_out(run_samples: float, data: int, batches: Sequence[int], seeds: int) -> Layout:
    """Give every branch the same number of samples, so that all together take at most `SHARE` of what the run took.

    Args:
        run_samples: that the run had taken at the checkpoint.
        data: samples in the training set. The last batch of an epoch is short, so that a branch which does not fit into
            one epoch is whole epochs.
        batches: that were asked for. The largest are left out while a branch at the largest has fewer than
            `LEAST_STEPS`; the fewer branches, the longer each.
        seeds: of each batch.

    Raises:
        PacelineError: less than two batches are left.
    """
    kept = sorted(batches)
    while len(kept) > 1:
        samples = _samples_of_each(SHARE * run_samples / (len(kept) * seeds), data, kept)
        whole_epochs = samples // data
        steps = {each: whole_epochs * math.ceil(data / each) or samples // each for each in kept}
        if steps[kept[-1]] >= LEAST_STEPS:
            taken = {each: samples if whole_epochs else steps[each] * each for each in kept}
            return Layout(steps, taken, tuple(sorted(set(batches) - set(kept))))
        kept.pop()
    raise PacelineError(
        f"the run is too short for branches: it had taken {run_samples:,.0f} samples at its checkpoint",
        why=f"all branches take a fifth of that, and each at least {LEAST_STEPS} steps at two batches or more",
        hint="fewer --seeds, smaller --batches, or a run that has come further",
    )


def _samples_of_each(budget: float, data: int, batches: Sequence[int]) -> int:
    """At most `budget`: whole epochs, or within one as many whole steps as all batches can take alike."""
    if budget >= data:
        return int(budget // data) * data
    alike = math.lcm(*batches)
    unit = alike if alike <= budget else batches[-1]
    return int(budget // unit) * unit
