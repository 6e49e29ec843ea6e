"""Data that fit in memory: columns of shape (n, ...), gathered and prepared a batch at a time, as whole tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, channels_last
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_map


@dataclass(frozen=True)
class Draws:
    """Random numbers of one global batch, of which a rank takes its part.

    They are drawn for the whole batch on every rank and then cut, so that a sample is augmented in the same way
    whichever rank has it: augmented runs, too, do not depend on the number of workers.

    Attributes:
        seed: gives the seed of this global batch; not asked for before the first number is drawn.
        total: samples in the global batch.
        start, stop: this rank's part.
    """

    seed: Callable[[], int]
    total: int
    start: int
    stop: int

    @cached_property
    def generator(self) -> torch.Generator:
        """On the CPU, seeded for this batch."""
        return torch.Generator().manual_seed(self.seed())

    def uniform(self) -> Tensor:
        """(stop - start,) numbers in [0, 1)."""
        return torch.rand(self.total, generator=self.generator)[self.start : self.stop]

    def integers(self, high: int) -> Tensor:
        """(stop - start,) whole numbers in [0, high)."""
        return torch.randint(high, (self.total,), generator=self.generator)[self.start : self.stop]


@dataclass(frozen=True)
class Like:
    """What batches shall be like.

    Attributes:
        device: where.
        dtype: of the floating-point inputs.
        channels_last: whether images shall have their channels last in memory.
    """

    device: torch.device
    dtype: torch.dtype
    channels_last: bool


Prepare = Callable[[tuple[Tensor, ...], Draws | None, Like], Any]
"""prepare(gathered columns, draws or None when not training, like) -> batch."""


def plain(columns: tuple[Tensor, ...], draws: Draws | None, like: Like) -> Any:
    """Floating-point columns in the like's dtype, all on its device."""
    del draws
    return tuple(
        column.to(like.device, like.dtype if column.is_floating_point() else None, non_blocking=True)
        for column in columns
    )


class Arrays:
    """Columns of equal length.

    Args:
        columns: arrays of shape (n, ...): numpy (also memory-mapped) or tensors. Keep images uint8.
        prepare: what makes a batch of gathered rows.
        names: for messages.

    Raises:
        ValueError: no column, or columns of different lengths.

    Attributes:
        mapped: the columns are mapped files, of which a machine holds one copy anyway.
    """

    def __init__(self, *columns: np.ndarray | Tensor, prepare: Prepare = plain, names: Sequence[str] = ()) -> None:
        if not columns:
            raise ValueError("Arrays needs at least one column")
        self.columns = tuple(c if isinstance(c, Tensor) else torch.from_numpy(np.asanyarray(c)) for c in columns)
        lengths = [len(c) for c in self.columns]
        if len(set(lengths)) != 1:
            raise ValueError(f"columns of different lengths: {lengths}")
        self.mapped = all(isinstance(c, np.memmap) for c in columns)
        self.prepare = prepare
        self.names = tuple(names)

    def __len__(self) -> int:
        return len(self.columns[0])

    @property
    def size_bytes(self) -> int:
        """Of all columns."""
        return sum(c.numel() * c.element_size() for c in self.columns)

    def to(self, device: torch.device) -> Arrays:
        """The same data on another device; on the same one, no copy."""
        return self.with_columns([c.to(device) for c in self.columns])

    def with_columns(self, columns: Sequence[Tensor]) -> Arrays:
        """The same data held elsewhere."""
        return Arrays(*columns, prepare=self.prepare, names=self.names)

    def batch(self, indices: Tensor, draws: Draws | None, like: Like) -> Any:
        """Rows `indices` (k,), gathered and prepared."""
        indices = indices.to(self.columns[0].device, non_blocking=True)
        return self.prepare(tuple(c.index_select(0, indices) for c in self.columns), draws, like)


def to_device(batch: Any, like: Like) -> Any:
    """A batch of any form on the device of `like`, its floating-point tensors in the dtype of `like`.

    Args:
        batch: tensors in tuples, lists, dictionaries and packed sequences. Other objects go to the device by their
            own method `to`, where they have one, and otherwise stay.
        like: device, dtype and memory layout.
    """

    def move(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            dtype = like.dtype if leaf.is_floating_point() else leaf.dtype
            there = leaf.to(like.device, dtype, non_blocking=True)
            if like.channels_last and there.ndim == 4:
                there = there.contiguous(memory_format=channels_last)
            return there
        if isinstance(leaf, PackedSequence):
            dtype = like.dtype if leaf.data.is_floating_point() else leaf.data.dtype
            return leaf.to(like.device, dtype)  # type: ignore[arg-type]  # lengths stay on the CPU, as torch wants them
        if like.device.type != "cpu" and callable(getattr(leaf, "to", None)):
            return leaf.to(like.device)
        return leaf

    return tree_map(move, batch, is_leaf=lambda node: isinstance(node, PackedSequence))
