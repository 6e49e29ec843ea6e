"""Do all ranks hold the same state? Judged from fingerprints, which are records; nothing is measured here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.records.observed import Fingerprint

KINDS = ("parameter", "buffer", "optimizer", "random")
"""First parts of a fingerprint's names, heaviest first."""


@dataclass(frozen=True)
class Difference:
    """One tensor that is not the same on all ranks.

    Attributes:
        name: as the fingerprint has it.
        ranks: which ranks agree with each other, each group sorted, the one with the lowest rank first.
    """

    name: str
    ranks: tuple[tuple[int, ...], ...]

    @property
    def kind(self) -> str:
        """Of `KINDS`."""
        return self.name.partition(":")[0]

    def __str__(self) -> str:
        groups = " | ".join(", ".join(str(rank) for rank in group) for group in self.ranks)
        return f"{self.name} (ranks {groups})"


def differences(fingerprints: Sequence[Fingerprint]) -> list[Difference]:
    """What differs between ranks, parameters first; a name that a rank lacks differs too.

    Args:
        fingerprints: one a rank, of the same step.

    Raises:
        ValueError: two of the same rank, or of different steps.
    """
    by_rank = {each.rank: each.digests for each in fingerprints}
    if len(by_rank) != len(fingerprints):
        raise ValueError("two fingerprints of one rank cannot be compared")
    if len({each.step for each in fingerprints}) > 1:
        raise ValueError(f"fingerprints of different steps: {sorted({each.step for each in fingerprints})}")
    names = dict.fromkeys(name for digests in by_rank.values() for name in digests)
    found = []
    for name in names:
        groups: dict[str, list[int]] = {}
        for rank in sorted(by_rank):
            groups.setdefault(by_rank[rank].get(name, ""), []).append(rank)
        if len(groups) > 1:
            found.append(Difference(name, tuple(tuple(group) for group in groups.values())))
    return sorted(found, key=lambda each: KINDS.index(each.kind) if each.kind in KINDS else len(KINDS))
