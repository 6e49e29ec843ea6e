"""Phrases that several messages share."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def ranks_text(ranks: Collection[int]) -> str:
    """`rank 1`, `ranks 0 and 2`, `ranks 0, 1, 2 and 5 more`."""
    names = [str(rank) for rank in sorted(ranks)]
    if len(names) == 1:
        return f"rank {names[0]}"
    if len(names) > 6:
        return f"ranks {', '.join(names[:5])} and {len(names) - 5} more"
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"


def names_text(names: Sequence[str]) -> str:
    """`conv1.weight`, `conv1.weight and 11 more`."""
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def count_text(number: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def when_text(step: int) -> str:
    """`before the first step`, `after step 3`."""
    return f"after step {step}" if step else "before the first step"
