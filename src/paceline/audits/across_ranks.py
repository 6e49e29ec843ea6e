"""Collects values of all ranks: one a rank under equal keys, or the earliest of any rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")
_KEPT = 1000
"""Complete keys; the oldest are forgotten first."""


def differing(values: Mapping[int, object]) -> list[int]:
    """Ranks whose value differs from that of the lowest rank, in order."""
    lowest, *others = sorted(values)
    return [rank for rank in others if values[rank] != values[lowest]]


class AcrossRanks(Generic[T]):
    """Collects one value a rank under a key, until every rank of the job has given its own."""

    def __init__(self) -> None:
        self._open: dict[Hashable, dict[int, T]] = defaultdict(dict)
        self._complete: dict[Hashable, None] = {}

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
        if len(self._complete) > _KEPT:
            del self._complete[next(iter(self._complete))]
        return dict(sorted(values.items()))


class FirstDifference(Generic[T]):
    """Compares one value a rank under equal keys, and keeps the values of the first key that differ.

    Args:
        of: what is compared.

    Attributes:
        compared: keys compared.
        ranks: the first values that differ, by rank; empty while all are equal.
    """

    def __init__(self, of: Callable[[T], object]) -> None:
        self.compared = 0
        self.ranks: dict[int, T] = {}
        self._of = of
        self._values: AcrossRanks[T] = AcrossRanks()

    def add(self, key: Hashable, rank: int, value: T, world: int) -> None:
        """Add a rank's value."""
        ranks = self._values.add(key, rank, value, world)
        if ranks is None or world < 2:
            return
        self.compared += 1
        if not self.ranks and differing({rank: self._of(each) for rank, each in ranks.items()}):
            self.ranks = ranks

    @property
    def differing(self) -> list[int]:
        """Ranks whose value differs from that of the lowest rank; empty while all are equal."""
        return differing({rank: self._of(each) for rank, each in self.ranks.items()}) if self.ranks else []


class Earliest(Generic[T]):
    """Keeps the value of the lowest step, of the lowest rank among equals, and which ranks and steps had one."""

    def __init__(self) -> None:
        self.at: tuple[int, int] | None = None
        """Step and rank."""
        self.value: T | None = None
        self.ranks: set[int] = set()
        self.steps: set[int] = set()

    def add(self, step: int, rank: int, value: T) -> None:
        """Take a value of a rank; of two with the same step and rank the first stays."""
        self.ranks.add(rank)
        self.steps.add(step)
        if self.at is None or (step, rank) < self.at:
            self.at, self.value = (step, rank), value
