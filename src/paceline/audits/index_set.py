"""Which samples a rank read in a pass: a bitmap, so that a million samples take 125 kB."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

LARGEST = 1 << 27
"""Indices from here on are not collected: a bitmap would take more than 16 MB a rank and pass."""


class IndexSet:
    """Indices of samples, each with the knowledge whether it came once or more often.

    Attributes:
        count: indices added, repeated ones included.
        overflow: an index was too large to be collected.
    """

    def __init__(self) -> None:
        self.count = 0
        self.overflow = False
        self._once = bytearray()
        self._again: set[int] = set()

    def add(self, indices: Iterable[int]) -> None:
        """Add the indices of a batch."""
        for index in indices:
            if not 0 <= index < LARGEST:
                self.overflow = True
                continue
            byte, bit = index >> 3, 1 << (index & 7)
            if byte >= len(self._once):
                self._once.extend(bytes(byte + 1 - len(self._once) + len(self._once) // 4))
            if self._once[byte] & bit:
                self._again.add(index)
            self._once[byte] |= bit
            self.count += 1

    @property
    def bits(self) -> int:
        """The set as an integer: bit i stands for index i."""
        return int.from_bytes(self._once, "little")

    @property
    def again(self) -> set[int]:
        """Indices that came more than once."""
        return self._again

    @property
    def size_bytes(self) -> int:
        """Memory that the bitmap takes."""
        return len(self._once)


def bits_of(indices: Iterable[int]) -> int:
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
