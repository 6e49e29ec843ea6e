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

from paceline.audits.across_ranks import FirstDifference
from paceline.audits.audit import Audit
from paceline.audits.run_state import RunState
from paceline.audits.wording import count_text, ranks_text
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
        self._models: FirstDifference[ModelWrapped] = FirstDifference(lambda each: each.order)

    def feed(self, rank: int, event: Event) -> None:
        if isinstance(event, ModelWrapped) and event.group in (0, self.world):
            self._models.add((event.attempt, event.number), rank, event, self.world)

    def findings(self) -> list[Finding]:
        ranks, differing = self._models.ranks, self._models.differing
        if not differing:
            return []
        base, other = ranks[min(ranks)], ranks[differing[0]]
        names = zip(base.first_names, other.first_names, strict=False)
        position, pair = next(((number, pair) for number, pair in enumerate(names) if pair[0] != pair[1]), (None, None))
        holds = (
            f"parameter {position} is {pair[0]} on rank {min(ranks)} and {pair[1]} on {ranks_text(differing)}"
            if pair is not None
            else f"{ranks_text(differing)} registered other names, shapes or types than rank {min(ranks)}"
        )
        return [
            self.finding(
                "error",
                f"the ranks register the parameters of {base.model} in different order ({holds}): "
                "DDP averages gradients of different parameters",
                "build modules in a fixed order on all ranks: iterate over a list or sorted(...), not over a set",
                place=other.place or base.place,
                rank=differing[0],
                step=base.step,
                orders={str(rank): each.order for rank, each in ranks.items()},
            )
        ]

    def looked_at(self) -> str:
        models = self._models.compared
        return f"the parameter order of {count_text(models, 'wrapped model')}" if models else ""
