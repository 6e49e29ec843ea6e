"""Sums over ranks whose bits do not depend on how many ranks there are.

An all-reduce adds in an order that follows from the world size, so its last bits do, too. Here the running sum goes
from rank to rank: each adds its pieces to what it received and passes the result on; the last one tells everybody.

    rank 0   ((p0 + p1) + p2)  ->  rank 1   ((... + p3) + p4)  ->  ...  ->  broadcast

The adding is serial, which costs little where a piece takes long to compute: every rank computes its pieces at once
and only waits with adding them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from paceline.parallel.reduce import all_objects
from paceline.records.errors import Exit, PacelineError

_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64)
_MAX_DIMS = 8
_EMPTY, _SUM, _FAILED = 0, 1, 2


def add_in_order(partials: Iterable[Tensor], start: Tensor | None = None) -> Tensor | None:
    """((start + p0) + p1) + ..., without a message; None when there is nothing to add.

    Args:
        partials: of one shape and dtype; consumed one at a time and never changed.
        start: what comes before the first; it is written to.
    """
    total = start
    for partial in partials:
        total = partial.clone() if total is None else total.add_(_like(partial, total))
    return total


def ordered_sum(partials: Iterable[Tensor]) -> Tensor:
    """((p0 + p1) + p2) + ... over all pieces of all ranks, the same bits on every rank and for every world size.

    Rank 0 holds the first pieces, rank 1 those that follow, and so on; a rank may have none. Rank 0 adds as it goes;
    the others hold their pieces until their turn. Every rank calls this together. Without a process group there is
    one rank.

    Args:
        partials: this rank's consecutive pieces, of one shape and dtype over all ranks; never changed.

    Returns:
        the sum, where the backend has its tensors (NCCL: on the GPU, else on the CPU); without a process group, where
        the pieces are.

    Raises:
        ValueError: no rank has a piece, or they differ in shape or dtype.
        PacelineError: another rank failed while it made its pieces: what it met, if that was one, else its words. The
            rank that failed raises what it met.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        total = add_in_order(partials)
        if total is None:
            raise ValueError("there is nothing to sum")
        return total
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    pieces, failure = (partials, None) if rank == 0 else _made(partials)
    state, total = (_EMPTY, None) if rank == 0 else _transfer(functools.partial(dist.recv, src=rank - 1))
    if state != _FAILED and failure is None:
        total, failure = _added(pieces, total)
        state = _EMPTY if total is None else _SUM
    if failure is not None or state == _FAILED:
        state, total = _FAILED, None
    if rank != last:
        _transfer(functools.partial(dist.send, dst=rank + 1), state, total, sends=True)
    state, wire = _transfer(functools.partial(dist.broadcast, src=last), state, total, sends=rank == last)
    if state == _FAILED:
        raise _first_failure(failure)
    if wire is None:
        raise ValueError("there is nothing to sum")
    return wire


def _first_failure(own: Exception | None) -> Exception:
    """What a rank that failed met, on every rank: whichever is heard first, users get the reason."""
    words = own if own is None or isinstance(own, PacelineError) else f"{type(own).__name__}: {own}"
    told = all_objects(words)
    if own is not None:
        return own
    rank, first = next((rank, each) for rank, each in enumerate(told) if each is not None)
    if isinstance(first, PacelineError):
        return first
    return PacelineError(
        "a sum over ranks could not be made",
        why=f"rank {rank} failed while it computed its part: {first}",
        hint="its log in the run's logs/ says where",
        exit_code=Exit.FAILED,
    )


def _made(partials: Iterable[Tensor]) -> tuple[list[Tensor], Exception | None]:
    """The pieces, or why there are none: the other ranks wait for word of it."""
    try:
        return list(partials), None
    except Exception as error:  # noqa: BLE001  raised again once the others know
        return [], error


def _added(pieces: Iterable[Tensor], total: Tensor | None) -> tuple[Tensor | None, Exception | None]:
    try:
        total = add_in_order(pieces, total)
        if total is not None and (total.dtype not in _DTYPES or total.ndim > _MAX_DIMS):
            raise ValueError(f"cannot send {total.ndim} dimensions of {total.dtype}")
    except Exception as error:  # noqa: BLE001  raised again once the others know
        return None, error
    return total, None


def _transfer(
    move: Callable[[Tensor], Any], state: int = _EMPTY, total: Tensor | None = None, *, sends: bool = False
) -> tuple[int, Tensor | None]:
    """A state and its sum, from a rank that sends them to one that does not; returns what arrives.

    Args:
        move: sends or receives a tensor in place: dist.send, dist.recv or dist.broadcast.
        state, total: of a rank that sends.
        sends: whether this rank does.
    """
    header = _header(state, total)
    move(header)
    if (state := int(header[0])) != _SUM:
        return state, None
    wire = total.to(header.device).contiguous() if sends and total is not None else _empty(header)
    move(wire)
    return state, wire


def _header(state: int, total: Tensor | None) -> Tensor:
    """(3 + _MAX_DIMS,) int64: state, place of the dtype in `_DTYPES`, dimensions, their sizes."""
    words = [state] + [0] * (2 + _MAX_DIMS)
    if total is not None:
        words[1:3] = [_DTYPES.index(total.dtype), total.ndim]
        words[3 : 3 + total.ndim] = total.shape
    return torch.tensor(words, device="cuda" if dist.get_backend() == "nccl" else "cpu")


def _empty(header: Tensor) -> Tensor:
    _, dtype, ndim, *sizes = header.tolist()
    return torch.empty(sizes[:ndim], dtype=_DTYPES[dtype], device=header.device)


def _like(partial: Tensor, total: Tensor) -> Tensor:
    if partial.shape != total.shape or partial.dtype != total.dtype:
        raise ValueError(
            f"pieces differ: {tuple(total.shape)} {total.dtype} before {tuple(partial.shape)} {partial.dtype}"
        )
    return partial.to(total.device)
