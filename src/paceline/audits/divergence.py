"""Compares the states of all ranks: which tensors differ, of which kind, and when."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass

from paceline.audits.across_ranks import AcrossRanks, differing
from paceline.audits.wording import names_text
from paceline.records.event import Event
from paceline.records.observed import Fingerprint

_KINDS = ("parameter", "gradient", "optimizer", "buffer")
_MOMENTS = ("start", "gradients", "state", "evaluation", "end")
"""In the order in which they follow each other around one step."""


@dataclass(frozen=True)
class Difference:
    """Tensors of one kind that differ between ranks at one instant.

    Attributes:
        step: optimizer steps done; for gradients the step that takes them.
        moment: as in `Fingerprint`.
        kind: `parameter`, `gradient`, `optimizer` or `buffer`.
        names: of the tensors, in the order of the model.
        ranks: those that differ from the lowest rank.
        compared: tensors of that kind.
    """

    step: int
    moment: str
    kind: str
    names: list[str]
    ranks: list[int]
    compared: int

    @property
    def instant(self) -> tuple[int, int]:
        """Sorts differences by time."""
        return instant(self.step, self.moment)

    @property
    def text(self) -> str:
        """`conv1.weight and 11 more`."""
        return names_text(self.names)


def instant(step: int, moment: str) -> tuple[int, int]:
    """A key that sorts instants by time; a moment of a later version comes right after the step."""
    return step, _MOMENTS.index(moment) if moment in _MOMENTS else _MOMENTS.index("state")


class Divergence:
    """Compares fingerprints of all ranks at equal instants.

    Ranks on which a model's parameters have different names hold different parts of it: these are not compared.

    Attributes:
        differences: every difference, in order of time.
        compared: instants compared, as (step, moment), in order of time.
    """

    def __init__(self) -> None:
        self.differences: list[Difference] = []
        self.compared: list[tuple[int, str]] = []
        self._compared: set[tuple[int, str]] = set()
        self._prints: AcrossRanks[dict[str, str]] = AcrossRanks()
        self._again: dict[tuple[int, object, int, str], int] = {}

    def feed(self, rank: int, event: Event, world: int) -> None:
        """Take a fingerprint; other events are ignored."""
        if not isinstance(event, Fingerprint) or world < 2:
            return
        key = (event.attempt, event.step, event.moment)
        occurrence = self._again.get((rank, *key), 0)  # two optimizers in one step
        self._again[(rank, *key)] = occurrence + 1
        ranks = self._prints.add((*key, occurrence), rank, event.digests, world)
        if ranks is None:
            return
        if (at := (event.step, event.moment)) not in self._compared:
            self._compared.add(at)
            insort(self.compared, at, key=lambda each: instant(*each))
        if all(each == event.digests for each in ranks.values()):
            return
        for kind in _KINDS:
            difference = _compare(event.step, event.moment, kind, ranks)
            if difference is not None:
                insort(self.differences, difference, key=lambda each: each.instant)


def _compare(step: int, moment: str, kind: str, ranks: dict[int, dict[str, str]]) -> Difference | None:
    prefix = f"{kind}:"
    names = list(dict.fromkeys(name for digests in ranks.values() for name in digests if name.startswith(prefix)))
    if kind == "parameter":
        parts = {_model(name) for name in names if any(name not in digests for digests in ranks.values())}
        names = [name for name in names if _model(name) not in parts]
    changed = [name for name in names if len({digests.get(name) for digests in ranks.values()}) > 1]
    if not changed:
        return None
    others = differing({rank: [digests.get(name) for name in changed] for rank, digests in ranks.items()})
    return Difference(step, moment, kind, [name.removeprefix(prefix) for name in changed], others, len(names))


def _model(name: str) -> str:
    """The prefix that tells models apart; empty for the first wrapped one."""
    return name.rpartition("/")[0]
