"""Collects values of all ranks: one a rank under equal keys, or the earliest of any rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class AcrossRanks(Generic[T]):
    """Collects one value a rank under a key, until every rank of the job has given its own.

    Args:
        keep: complete keys that are kept, the oldest are forgotten first.
    """

    def __init__(self, keep: int = 1000) -> None:
        self._open: dict[Hashable, dict[int, T]] = defaultdict(dict)
        self._complete: dict[Hashable, None] = {}
        self._keep = keep

    def add(self, key: Hashable, rank: int, value: T, world: int) -> dict[int, T] | None:
        """Add a rank's value. Returns the values by rank once, when the last of `world` ranks has given its own."""
        if key in self._complete:
            return None
        values = self._open[key]
        values[rank] = value
        if world == 0 or len(values) < world:
            return None
        del self._open[key]
        self._complete[key] = None
        if len(self._complete) > self._keep:
            del self._complete[next(iter(self._complete))]
        return dict(sorted(values.items()))


class Earliest(Generic[T]):
    """Keeps the value of the lowest step, of the lowest rank among equals, and which ranks had one."""

    def __init__(self) -> None:
        self.at: tuple[int, int] | None = None
        """Step and rank."""
        self.value: T | None = None
        self.ranks: set[int] = set()

    def add(self, step: int, rank: int, value: T) -> None:
        """Take a value of a rank; of two with the same step and rank the first stays."""
        self.ranks.add(rank)
        if self.at is None or (step, rank) < self.at:
            self.at, self.value = (step, rank), value
