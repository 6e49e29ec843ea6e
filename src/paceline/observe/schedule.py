"""Which steps are looked at closely. It depends on the number of the step alone, so all ranks choose the same ones."""

from __future__ import annotations

import bisect

_EVERY = 50


def is_recorded(step: int) -> bool:
    """True for steps that are written down: the first 50, then 25 to 50 in each doubling, and those with digests."""
    if step <= _EVERY:
        return True
    return step % (1 << (step // _EVERY).bit_length()) == 0 or step in _FIBONACCI


def next_recorded(step: int) -> int:
    """The first step after this one that is written down."""
    step += 1
    every = 1 << (step // _EVERY).bit_length()
    return min(-(-step // every) * every, _IN_ORDER[bisect.bisect_left(_IN_ORDER, step)])


def has_digests(step: int) -> bool:
    """True for steps after which state is digested: Fibonacci numbers, each about 1.6 times as late as the last."""
    return step in _FIBONACCI


def _fibonacci(limit: int) -> list[int]:
    found = [1, 2]
    while found[-1] < limit:
        found.append(found[-2] + found[-1])
    return found


_IN_ORDER = _fibonacci(10**12)
_FIBONACCI = frozenset(_IN_ORDER)
