"""Finds the first operation of a forward pass whose results ranks cannot have in parts.

Operations on single samples give ranks the parts of what one process has: their sums add up. Weights are the same
everywhere. Means over equally many samples are the mean of the ranks' means. Everything else depends on other samples
of the batch, or is computed in another way.
"""

from __future__ import annotations

import difflib
import math
from pathlib import Path

import msgspec

from paceline.records.parity import Operation, rank_folder

_TOLERANCE = {True: 1e-9, False: 1e-4}
"""Relative to the sum of magnitudes, in float64 and in others."""


def first_operation(ranks: Path, world: int, one: Path, *, double: bool) -> Operation | None:
    """The first operation that differs.

    Args:
        ranks: folder of the run of N ranks.
        world: its ranks.
        one: folder of the run of one process.
        double: both computed in float64.

    Returns:
        As rank 0 has it; None where all agree, or where the runs do different operations.
    """
    theirs, ours = [_read(ranks, rank) for rank in range(world)], _read(one, 0)
    names = [[(each.name, str(each.place)) for each in run] for run in (*theirs, ours)]
    if not all(names) or any(each != names[0] for each in names[1:-1]):
        return None
    matcher = difflib.SequenceMatcher(a=names[0], b=names[-1], autojunk=False)
    for here, there, length in matcher.get_matching_blocks():
        for offset in range(length):
            parts = [run[here + offset] for run in theirs]
            if not _agree(parts, ours[there + offset], _TOLERANCE[double]):
                return parts[0]
    return None


def _read(folder: Path, rank: int) -> list[Operation]:
    path = rank_folder(folder, rank) / "operations.jsonl"
    if not path.exists():
        return []
    return [msgspec.json.decode(line, type=Operation) for line in path.read_bytes().splitlines()]


def _agree(parts: list[Operation], whole: Operation, tolerance: float) -> bool:
    allowed = tolerance * max(whole.size, 1e-300)
    total = math.fsum(each.total for each in parts)
    joined = abs(total - whole.total) <= allowed and abs(math.fsum(each.size for each in parts) - whole.size) <= allowed
    same = all(each.shape == whole.shape and abs(each.total - whole.total) <= allowed for each in parts)
    mean = whole.shape == parts[0].shape and abs(total / len(parts) - whole.total) <= allowed
    return joined or same or mean
