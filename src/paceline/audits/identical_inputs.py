"""Ranks that train on the same inputs at the same steps."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from paceline.audits.across_ranks import AcrossRanks
from paceline.records.event import Event, attempt_of
from paceline.records.observed_rank import InputSeen

LEAST = 3
"""Instants at which inputs must be equal, with as many different inputs."""
SHARE = 0.9
"""Of the compared instants."""
_KEPT = 16


@dataclass
class _Slot:
    """Forward passes of one model that have the same place within their steps."""

    compared: int = 0
    equal: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))
    """Instants, by the lowest rank with an input and another rank with the same."""
    inputs: dict[tuple[int, int], set[str]] = field(default_factory=lambda: defaultdict(set))
    first: dict[tuple[int, int], InputSeen] = field(default_factory=dict)
    digests: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))

    @property
    def constant(self) -> bool:
        """A rank has the same input at all steps: fixed noise, or one batch on purpose."""
        return any(len(each) < 2 for each in self.digests.values())

    def add(self, ranks: dict[int, InputSeen]) -> None:
        self.compared += 1
        lowest: dict[str, int] = {}
        for rank, each in ranks.items():
            if len(self.digests[rank]) < _KEPT:
                self.digests[rank].add(each.digest)
            other = lowest.setdefault(each.digest, rank)
            if other != rank:
                pair = (other, rank)
                self.equal[pair] += 1
                if len(self.inputs[pair]) < _KEPT:
                    self.inputs[pair].add(each.digest)
                if pair not in self.first or each.step < self.first[pair].step:
                    self.first[pair] = each


@dataclass(frozen=True)
class Identical:
    """Ranks with the same inputs.

    Attributes:
        ranks: them; the lowest first.
        equal: instants at which the first two had the same input.
        compared: instants compared.
        first: the earliest of the same inputs, as the second of the ranks saw it.
    """

    ranks: list[int]
    equal: int
    compared: int
    first: InputSeen


class IdenticalInputs:
    """Compares what the models of all ranks are given, forward pass by forward pass."""

    def __init__(self) -> None:
        self._instants: AcrossRanks[InputSeen] = AcrossRanks()
        self._slots: dict[tuple[int, int | None, int], _Slot] = {}
        self.compared = 0

    def feed(self, rank: int, event: Event, world: int) -> None:
        """Take an input; other events are ignored."""
        if not isinstance(event, InputSeen) or world < 2:
            return
        slot = (attempt_of(event), event.wrapper, event.forward)
        ranks = self._instants.add((*slot, event.step), rank, event, world)
        if ranks is None or any(not each.digest for each in ranks.values()):
            return
        self.compared += 1
        self._slots.setdefault(slot, _Slot()).add(ranks)

    def found(self) -> Identical | None:
        """The ranks that had the same input nearly always; None where there are none."""
        slots = [slot for slot in self._slots.values() if not slot.constant]
        compared = sum(slot.compared for slot in slots)
        equal: dict[tuple[int, int], int] = defaultdict(int)
        inputs: dict[tuple[int, int], set[str]] = defaultdict(set)
        for slot in slots:
            for pair, count in slot.equal.items():
                equal[pair] += count
                inputs[pair] |= slot.inputs[pair]
        pairs = sorted(
            pair for pair, count in equal.items() if count >= SHARE * compared and len(inputs[pair]) >= LEAST
        )
        if not pairs:
            return None
        low, high = pairs[0]
        first = min((slot.first[low, high] for slot in slots if (low, high) in slot.first), key=lambda one: one.step)
        return Identical([low, *(other for one, other in pairs if one == low)], equal[low, high], compared, first)
