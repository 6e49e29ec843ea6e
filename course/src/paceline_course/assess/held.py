"""What counts as an accuracy that a training has: one that it holds for two epochs running."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise


def held(accuracies: Sequence[float]) -> float:
    """The highest level that two epochs running both had; 0 where there are no two.

    Args:
        accuracies: at the end of each epoch, 0 to 1; what is no finite number counts as 0.
    """
    return max((min(pair) for pair in pairwise(_finite(accuracies))), default=0.0)


def reached(accuracies: Sequence[float], target: float) -> int | None:
    """The epoch at whose end the target was held: the second of the first two running that had it, from 0.

    Args:
        accuracies: at the end of each epoch, 0 to 1; what is no finite number counts as 0.
        target: to be had or exceeded.

    Returns:
        None where that never was.
    """
    pairs = enumerate(pairwise(_finite(accuracies)), start=1)
    return next((epoch for epoch, pair in pairs if min(pair) >= target), None)


def _finite(accuracies: Sequence[float]) -> list[float]:
    return [value if math.isfinite(value) else 0.0 for value in accuracies]
