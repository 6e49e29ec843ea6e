"""Ranks train on identical batches.

What it finds:
    Ranks whose models are given the same input at the same steps, although it changes from step to step.

Why it matters:
    The gradients of these ranks are equal, so their average is the gradient of one rank: the loss looks as on one
    device, and all other devices work in vain.

Repair:
    Give each rank its own part of the data: a DistributedSampler, a shard of the stream, or a generator that is seeded
    by rank.

Known problems:
    Digests are taken of some elements of the input. An input that is the same at all steps is passed over.

References:
    F01. https://github.com/PatrickHua/SimSiam/issues/16
    F02. https://github.com/Lightning-AI/pytorch-lightning/issues/15734
    F03. https://github.com/speechbrain/speechbrain/issues/1495
    F11. https://github.com/huggingface/datasets/issues/5360
    F12. https://github.com/goodfire-ai/spd/pull/412
    F21. https://github.com/Denys88/rl_games/issues/161
"""

from __future__ import annotations

from paceline.audits.audit import Audit
from paceline.audits.identical_inputs import Identical
from paceline.audits.loader_passes import TORCH_SAMPLERS, Pass, pass_of
from paceline.audits.run_state import RunState
from paceline.audits.wording import ranks_text
from paceline.records.event import Event, attempt_of
from paceline.records.observed_rank import LedgerBatch, LoaderBegun, LoaderEnded, ObservedStep
from paceline.records.place import Place
from paceline.records.schema import Finding

_ADVICE = {
    "F02": "pass sampler=DistributedSampler(dataset) to the DataLoader instead of shuffle=True",
    "F11": "let __iter__ yield the part of this rank and worker only: islice(stream, rank, None, world)",
    "F12": "read the sample that the index names in __getitem__, or seed its generator with the rank",
    "F21": "give rank r its own part of the batch, or seed the generator that draws it with seed + rank",
}
_MOST_BATCHES, _MOST_PASSES = 64, 2
"""Whose sample indices are compared, of each loader."""


class IdenticalBatches(Audit):
    """Compares the inputs of ranks at equal steps."""

    code, name, topic = "DP122", "identical-batches", "data"
    faults = ("F02", "F01", "F03", "F11", "F12", "F21")
    needs = ("wrappers",)

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._begun: dict[tuple[int, int, int], LoaderBegun] = {}
        self._orders: dict[Pass, str | None] = {}
        self._indices: dict[tuple[Pass, int], int] = {}
        self._forward_places: dict[int, Place] = {}

    def feed(self, rank: int, event: Event) -> None:
        """Collect what explains that inputs are equal."""
        if isinstance(event, LoaderBegun):
            self._begun.setdefault((attempt_of(event), rank, event.loader), event)
        elif isinstance(event, LoaderEnded) and event.number < _MOST_PASSES:
            self._orders[pass_of(rank, event)] = event.order
        elif isinstance(event, LedgerBatch) and event.number < _MOST_PASSES and event.batch < _MOST_BATCHES:
            self._indices[pass_of(rank, event), event.batch] = hash(tuple(event.indices))
        elif isinstance(event, ObservedStep) and event.forward_place is not None:
            self._forward_places.setdefault(rank, event.forward_place)

    def findings(self) -> list[Finding]:
        found = self.run.inputs.found()
        if found is None or not self.run.parallel.everywhere:
            return []
        loader = self._loader(found)
        faults = self._faults(found, loader)
        rank = found.ranks[1]
        return [
            self.finding(
                "error",
                f"{ranks_text(found.ranks)} train on identical batches ({found.equal} of {found.compared} compared "
                f"forward passes, from step {found.first.step} on); together they do the work of one rank",
                _ADVICE[faults[0]],
                faults=faults,
                place=loader.place if loader and loader.place else self._forward_places.get(rank),
                rank=rank,
                step=found.first.step,
                equal=found.equal,
                compared=found.compared,
                loader=found.first.loader,
            )
        ]

    def looked_at(self) -> str:
        compared = self.run.inputs.compared
        return f"inputs of {compared} forward passes" if compared else ""

    def _loader(self, found: Identical) -> LoaderBegun | None:
        if found.first.loader is None:
            return None
        return self._begun.get((attempt_of(found.first), found.ranks[1], found.first.loader))

    def _faults(self, found: Identical, loader: LoaderBegun | None) -> tuple[str, ...]:
        if loader is None:
            return ("F21", "F02") if found.first.loader is None else ("F02",)
        if loader.iterable:
            return ("F11", "F02")
        if self._indices_differ(found):
            return ("F12",)
        if loader.unused_samplers:
            return ("F02", "F03")
        return ("F02", "F01") if loader.sampler in TORCH_SAMPLERS and not loader.sampler_facts else ("F02",)

    def _indices_differ(self, found: Identical) -> bool:
        """Whether the ranks were given other samples by their samplers."""
        first, (low, high) = found.first, found.ranks[:2]
        attempt, loader, number = attempt_of(first), first.loader or 0, first.number or 0
        passes = [(attempt, rank, loader, number) for rank in (low, high)]
        indices = [self._indices.get((each, first.batch or 0)) for each in passes]
        if None not in indices:
            return indices[0] != indices[1]
        orders = [self._orders.get(each) for each in passes]
        if None not in orders:
            return orders[0] != orders[1]
        facts = [self._begun[each[:3]].sampler_facts if each[:3] in self._begun else {} for each in passes]
        return all(each.get("num_replicas", 1) > 1 for each in facts) and facts[0].get("rank") != facts[1].get("rank")
