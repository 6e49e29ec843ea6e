"""The ranks register the parameters of one model in different order.

What it finds:
    Wrapped models whose parameters, as a list of name, shape and type, differ between ranks.

Why it matters:
    DDP pairs parameters by position, not by name. Where shapes happen to agree, it broadcasts and averages the values
    of different parameters, without a message.

Repair:
    Build modules in a fixed order: iterate over a list, or over `sorted(...)`, never over a set.

Known problems:
    None.

References:
    F46. https://github.com/pytorch/pytorch/issues/32426
"""

from __future__ import annotations

from paceline.audits.across_ranks import AcrossRanks
from paceline.audits.audit import Audit
from paceline.audits.run_state import RunState
from paceline.audits.wording import ranks_text
from paceline.records.event import Event
from paceline.records.observed_rank import ModelWrapped
from paceline.records.schema import Finding


class ParameterOrder(Audit):
    """Compares each wrapped model over all ranks."""

    code, name, topic = "DP108", "parameter-order", "replicas"
    faults = ("F46",)
    needs = ("wrappers",)
    explains_divergence = True

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._models: AcrossRanks[ModelWrapped] = AcrossRanks()
        self._compared = 0
        self._first: dict[int, ModelWrapped] | None = None

    def feed(self, rank: int, event: Event) -> None:
        """Compare the models of one number once every rank has wrapped its own."""
        if not isinstance(event, ModelWrapped):
            return
        ranks = self._models.add((event.attempt, event.number), rank, event, self.world)
        if ranks is None:
            return
        self._compared += 1
        together = all(each.group in (0, self.world) for each in ranks.values())
        if self._first is None and together and len({each.order for each in ranks.values()}) > 1:
            self._first = ranks

    def findings(self) -> list[Finding]:
        """At most one."""
        if self._first is None:
            return []
        (_, base), *others = self._first.items()
        parted = [rank for rank, each in others if each.order != base.order]
        other = self._first[parted[0]]
        names = zip(base.first_names, other.first_names, strict=False)
        position, pair = next(((number, pair) for number, pair in enumerate(names) if pair[0] != pair[1]), (None, None))
        holds = (
            f"parameter {position} is {pair[0]} on rank {min(self._first)} and {pair[1]} on {ranks_text(parted)}"
            if pair is not None
            else f"{ranks_text(parted)} registered other names, shapes or types than rank {min(self._first)}"
        )
        return [
            self.finding(
                "error",
                f"the parameters of {base.model} stand in different order on the ranks ({holds}): "
                "DDP averages gradients of different parameters",
                "build modules in a fixed order on all ranks: iterate over a list or sorted(...), not over a set",
                faults=("F46",),
                place=other.place or base.place,
                rank=parted[0],
                step=base.step,
                orders={str(rank): each.order for rank, each in self._first.items()},
            )
        ]

    def looked_at(self) -> str:
        """How many models were compared."""
        models = f"{self._compared} wrapped model{'s' if self._compared > 1 else ''}"
        return f"the parameter order of {models}" if self._compared and self.world > 1 else ""
