"""Which steps are looked at closely. It depends on the number of the step alone, so all ranks choose the same ones."""

from __future__ import annotations

_EVERY = 50


def is_recorded(step: int) -> bool:
    """Whether a step is written down: each of the first 50, then 25 to 50 in each doubling and those with digests."""
    if step <= _EVERY:
        return True
    return step % (1 << (step // _EVERY).bit_length()) == 0 or step in _FIBONACCI


def has_digests(step: int) -> bool:
    """Whether state is digested after a step: Fibonacci numbers, so about 1.6 times as late each time."""
    return step in _FIBONACCI


def _fibonacci(limit: int) -> frozenset[int]:
    found, pair = set(), (1, 2)
    while pair[0] < limit:
        found.add(pair[0])
        pair = (pair[1], sum(pair))
    return frozenset(found)


_FIBONACCI = _fibonacci(10**12)
