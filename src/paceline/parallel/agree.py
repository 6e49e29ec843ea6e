"""Decisions that all ranks take together, so that none waits for another that has gone its own way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist

from paceline.parallel.reduce import all_objects
from paceline.records.errors import PacelineError

T = TypeVar("T")


def from_rank_zero(make: Callable[[], T]) -> T:
    """What `make` returns on rank 0, on every rank; when it fails there, it fails everywhere with the same message."""
    box: list[Any] = [None, None]
    if dist.get_rank() == 0:
        try:
            box[0] = make()
        except PacelineError as error:
            box[1] = error
    dist.broadcast_object_list(box, src=0)
    if box[1] is not None:
        raise box[1]
    result: T = box[0]
    return result


def all_or_none(make: Callable[[], T]) -> T:
    """Run `make` on every rank; when it fails on any, every rank raises the failure of the lowest such rank.

    For set-up work that can fail on one machine only (data, devices), which would leave the others waiting.
    """
    result: T | None = None
    failure: PacelineError | None = None
    try:
        result = make()
    except PacelineError as error:
        failure = error
    for rank, found in enumerate(all_objects(failure)):
        if found is not None:
            if failure is None:
                found.why = f"{found.why} (on rank {rank})" if found.why else f"rank {rank} says so"
            raise found
    return result  # type: ignore[return-value]


def require_equal(what: str, value: str) -> None:
    """Refuse to start when ranks were given different settings."""
    values = all_objects(value)
    odd = [rank for rank, other in enumerate(values) if other != values[0]]
    if odd:
        raise PacelineError(
            f"rank {odd[0]} was started with another {what} than rank 0",
            why=f"rank 0: {values[0]}; rank {odd[0]}: {values[odd[0]]}",
            hint="give every machine the same command",
        )
