"""Sums over ranks: exact counts, means as sums over counts, rows in the order of the data."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from paceline.parallel.partition import split

T = TypeVar("T")


def sum_over_ranks(values: Tensor) -> Tensor:
    """Elementwise sum, in place, the same bits on every rank; float64 holds counts exactly up to 2^53."""
    dist.all_reduce(values, op=dist.ReduceOp.SUM)
    return values


def gather_rows(rows: Tensor, total: int) -> Tensor:
    """All ranks' rows in order, on every rank.

    Args:
        rows: (k, ...) of this rank, where k = len(split(total, world, rank)).
        total: rows over all ranks.
    """
    world = dist.get_world_size()
    sizes = [len(split(total, world, rank)) for rank in range(world)]
    padded = rows.new_zeros((max(sizes), *rows.shape[1:]))  # gloo returns garbage for unequal shapes
    padded[: len(rows)] = rows
    return torch.cat([part[:size] for part, size in zip(all_tensors(padded), sizes, strict=True)])


def all_tensors(own: Tensor) -> list[Tensor]:
    """This tensor of each rank, in their order, on every rank; all have one shape. Without a process group there is
    one rank."""
    if not dist.is_initialized():
        return [own]
    parts = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, own)
    return parts


def all_objects(own: T) -> list[T]:
    """Every rank's object, in rank order, on every rank."""
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, own)
    return gathered


def gather_objects(value: Any) -> list[Any] | None:
    """Every rank's object on rank 0, in rank order; None elsewhere."""
    rank, world = dist.get_rank(), dist.get_world_size()
    gathered: list[Any] | None = [None] * world if rank == 0 else None
    dist.gather_object(value, gathered, dst=0)
    return gathered
