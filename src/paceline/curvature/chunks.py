"""A fixed set of samples, cut into chunks that do not depend on the number of workers, ready to be used again."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from paceline.curvature.side_effects import seed_chunk
from paceline.parallel.partition import split
from paceline.records.errors import PacelineError
from paceline.tasks.data.arrays import Arrays, Like, to_device
from paceline.tasks.data.dataset_hooks import collate_of, tell_epoch

KEEP_BYTES = 1 << 30
"""Prepared batches are kept up to so much memory of a process; those beyond are prepared again at each use."""


class Chunks:
    """Samples 0..samples of `data` in their order, unaugmented, as prepared batches.

    Args:
        data: `Arrays`, or a map-style dataset (its own `collate` is used where it has one).
        like: what batches shall be like.
        samples: 1 or more, at most those of `data`.
        chunk: samples in a chunk at most, 1 or more. Sizes differ by at most one, so that no chunk is much smaller
            than others.

    Raises:
        PacelineError: `samples` is out of range.
    """

    def __init__(self, data: Any, like: Like, samples: int, chunk: int) -> None:
        if not 1 <= samples <= len(data):
            raise PacelineError(
                f"{samples:,} samples cannot be taken", hint=f"legal: 1 to {len(data):,}, what there is"
            )
        self.data = data
        self.like = like
        count = -(-samples // chunk)
        self.spans = [split(samples, count, index) for index in range(count)]
        self._kept: dict[int, Any] = {}
        self._kept_bytes = 0

    def __len__(self) -> int:
        return len(self.spans)

    @property
    def smallest(self) -> int:
        """Samples in the smallest chunk."""
        return len(self.spans[-1])

    def batch(self, index: int) -> Any:
        """Chunk `index`, prepared. A dataset that draws random numbers draws the same at each call: call this within
        `untouched`."""
        if index in self._kept:
            return self._kept[index]
        made = self._make(index, self.spans[index])
        size = sum(leaf.numel() * leaf.element_size() for leaf in tree_leaves(made) if isinstance(leaf, Tensor))
        if self._kept_bytes + size <= KEEP_BYTES:
            self._kept[index] = made
            self._kept_bytes += size
        return made

    def _make(self, index: int, span: range) -> Any:
        if isinstance(self.data, Arrays):
            return self.data.batch(torch.arange(span.start, span.stop), None, self.like)
        tell_epoch(self.data, 0)
        seed_chunk(index, self.like.device)
        return to_device(collate_of(self.data)([self.data[i] for i in range(span.start, span.stop)]), self.like)
