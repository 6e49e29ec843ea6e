"""The samples that a rank read in a pass, as a bitmap: a million samples take 125 kB."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

LARGEST = 1 << 27
"""Indices from here on are not collected: a bitmap would take more than 16 MB a rank and pass."""


class IndexSet:
    """Indices of samples, and which of them came more than once.

    Attributes:
        count: indices added, repeated ones included.
        overflow: an index was too large to be collected.
    """

    def __init__(self) -> None:
        self.count = 0
        self.overflow = False
        self._once = bytearray()
        self._again: set[int] = set()
        self._bits: int | None = None

    def add(self, indices: Collection[int]) -> None:
        """Add the indices of a batch."""
        if not indices:
            return
        last = max(indices)
        if min(indices) < 0 or last >= LARGEST:
            self.overflow = True
            return
        self._bits = None
        once = self._once
        if last >> 3 >= len(once):
            once.extend(bytes((last >> 3) + 1 - len(once)))
        for index in indices:
            byte, bit = index >> 3, 1 << (index & 7)
            if once[byte] & bit:
                self._again.add(index)
            else:
                once[byte] |= bit
        self.count += len(indices)

    @property
    def bits(self) -> int:
        """The set as an integer: bit i stands for index i."""
        if self._bits is None:
            self._bits = int.from_bytes(self._once, "little")
        return self._bits

    @property
    def again(self) -> set[int]:
        """Indices that came more than once."""
        return self._again

    @property
    def size_bytes(self) -> int:
        """Memory that the bitmap takes."""
        return len(self._once)


def bits_of(indices: Collection[int]) -> int:
    """A set of indices as an integer."""
    found = IndexSet()
    found.add(indices)
    return found.bits


def first_of(bits: int, most: int = 5) -> list[int]:
    """The lowest indices of a set."""
    return [index for index, _ in zip(_indices(bits), range(most), strict=False)]


def _indices(bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def union(sets: Iterable[int]) -> int:
    """Indices in any of the sets."""
    found = 0
    for bits in sets:
        found |= bits
    return found


def shared(sets: Iterable[int]) -> int:
    """Indices in two or more of the sets."""
    seen = twice = 0
    for bits in sets:
        twice |= seen & bits
        seen |= bits
    return twice
