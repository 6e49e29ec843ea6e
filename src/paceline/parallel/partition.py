"""Which sample goes where: pure functions of numbers, the same on every rank and for every world size.

    epoch      a permutation of all n samples, drawn from (seed, epoch)
    batch k    permutation[k*B : (k+1)*B]; the last one of an epoch may be shorter
    micro m    a contiguous slice of the batch, sizes differ by at most one
    rank r     a contiguous slice of the micro-batch, likewise

Neither the batch nor its micro-batches depend on the world size, so neither does the mathematics, that of a batch norm
over all ranks' micro-batches included. A rank's slice may be empty.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_ORDER, _DRAWS = 0, 1  # keys that keep the random streams of one seed apart


def split(total: int, parts: int, part: int) -> range:
    """The `part`-th of `parts` contiguous pieces of `total` things; sizes differ by at most one, larger ones first.

    Args:
        total: how many things, 0 or more.
        parts: 1 or more.
        part: 0 <= part < parts.
    """
    if parts < 1 or not 0 <= part < parts or total < 0:
        raise ValueError(f"cannot take part {part} of {parts} of {total}")
    size, larger = divmod(total, parts)
    start = part * size + min(part, larger)
    return range(start, start + size + (1 if part < larger else 0))


def steps_per_epoch(samples: int, global_batch: int) -> int:
    """Batches in an epoch; the last one holds what is left and is never dropped."""
    return math.ceil(samples / global_batch)


def epoch_order(samples: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The order of one epoch: a permutation of range(samples), shape (samples,)."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, _ORDER, epoch)))).permutation(samples)


def batch_span(samples: int, global_batch: int, index: int) -> range:
    """Positions of batch `index` within an epoch's order."""
    start = index * global_batch
    if not 0 <= start < samples:
        raise ValueError(f"batch {index} of {global_batch} does not exist among {samples} samples")
    return range(start, min(start + global_batch, samples))


def rank_spans(batch: range, world: int, rank: int, accumulation: int) -> list[range]:
    """Positions of each micro-batch of one rank, `accumulation` spans, some may be empty."""
    spans = []
    for part in range(accumulation):
        micro = split(len(batch), accumulation, part)
        mine = split(len(micro), world, rank)
        offset = batch.start + micro.start
        spans.append(range(offset + mine.start, offset + mine.stop))
    return spans


def largest_micro_batch(global_batch: int, world: int, accumulation: int) -> int:
    """The most samples that any rank holds at once."""
    return math.ceil(math.ceil(global_batch / accumulation) / world)


def draws_seed(seed: int, epoch: int, batch: int) -> int:
    """A 63-bit seed for what is random in one global batch (augmentation): equal on all ranks and world sizes."""
    state = np.random.SeedSequence((seed, _DRAWS, epoch, batch)).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))
