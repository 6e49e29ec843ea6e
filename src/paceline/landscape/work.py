"""What a measure needs besides the loss: where its parts are kept, when to stop, whom to tell how far it is.

Everything that took long to compute is kept below `parts/` as soon as it is there, so that a measurement that was
stopped, or killed, goes on with what it has.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed as dist

from paceline.parallel import agree
from paceline.parallel.rank_context import StopRequest
from paceline.parallel.reduce import sum_over_ranks
from paceline.records.errors import Exit
from paceline.records.schema import Measuring

T = TypeVar("T")
_TELL_EVERY_S = 0.2


class Stopped(Exception):  # noqa: N818  it is no error
    """All ranks have agreed to stop; what was computed is kept."""

    def __init__(self, exit_code: Exit) -> None:
        super().__init__("stopped")
        self.exit_code = exit_code


class Teller(Protocol):
    """Who writes events."""

    def measuring(self, event: Measuring) -> None:
        """Progress."""
        ...

    def note(self, message: str) -> None:
        """Something a person should know."""
        ...

    def elapsed_s(self) -> float:
        """Since the session began."""
        ...


class Work:
    """One measurement's surroundings. Without a process group there is one rank.

    Args:
        parts: the directory that parts are kept in.
        stop: what this rank was told.
        teller: gets progress of this rank; None where nobody listens.
        device: where the backend has its tensors.
    """

    def __init__(
        self,
        parts: Path,
        stop: StopRequest | None = None,
        teller: Teller | None = None,
        device: torch.device | None = None,
    ) -> None:
        self.parts = parts
        self.stop = stop or StopRequest()
        self._teller = teller
        self._device = device or torch.device("cpu")
        self._told = 0.0
        joined = dist.is_initialized()
        self.rank = dist.get_rank() if joined else 0
        self.world = dist.get_world_size() if joined else 1

    def told_to_stop(self) -> bool:
        """Whether this rank was; the others may not know yet."""
        return self.stop.terminate or self.stop.interrupt

    def pause(self) -> None:
        """All ranks together: a moment at which all stop if any was told to.

        Raises:
            Stopped: on every rank.
        """
        wishes = torch.tensor(self.stop.wishes(), dtype=torch.float64, device=self._device)
        if dist.is_initialized():
            sum_over_ranks(wishes)
        terminate, interrupt = wishes.tolist()
        if interrupt:
            raise Stopped(Exit.INTERRUPTED)
        if terminate:
            raise Stopped(Exit.TERMINATED)

    def from_rank_zero(self, make: Callable[[], T]) -> T:
        """What `make` returns on rank 0, on every rank."""
        return agree.from_rank_zero(make) if dist.is_initialized() else make()

    def gather(self, value: T) -> list[T]:
        """Every rank's value, in rank order, on every rank."""
        if not dist.is_initialized():
            return [value]
        values: list[Any] = [None] * self.world
        dist.all_gather_object(values, value)
        return values

    def note(self, message: str) -> None:
        """Something a person should know."""
        if self._teller is not None:
            self._teller.note(message)

    def tell(self, measure: str, done: int, total: int, unit: str, shown: str = "") -> None:
        """Progress, a few times a second at most; the first and the last in any case."""
        if self._teller is None:
            return
        now = time.perf_counter()
        if 0 < done < total and now - self._told < _TELL_EVERY_S:
            return
        self._told = now
        self._teller.measuring(
            Measuring(
                measure=measure, done=done, total=total, unit=unit, elapsed_s=self._teller.elapsed_s(), shown=shown
            )
        )
