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
    Digests are taken of some elements of the input. An input that is the same at all steps is ignored.

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
from paceline.records.observed_rank import LedgerBatch, LoaderBegun, ObservedStep
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
        self._indices: dict[tuple[Pass, int], int] = {}
        self._forward_places: dict[int, Place] = {}

    def feed(self, rank: int, event: Event) -> None:
        """Collect what explains that inputs are equal."""
        if isinstance(event, LedgerBatch) and event.number < _MOST_PASSES and event.batch < _MOST_BATCHES:
            self._indices[pass_of(rank, event), event.batch] = hash(tuple(event.indices))
        elif isinstance(event, ObservedStep) and event.forward_place is not None:
            self._forward_places.setdefault(rank, event.forward_place)

    def findings(self) -> list[Finding]:
        found = self.run.inputs.found()
        if found is None or not self.run.parallel.everywhere:
            return []
        loader = None if found.first.loader is None else self.run.passes.get(_pass(found, found.ranks[1])).begun
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
        """True if samplers gave the ranks different samples."""
        keys = [_pass(found, rank) for rank in found.ranks[:2]]
        indices = [self._indices.get((key, found.first.batch or 0)) for key in keys]
        if None not in indices:
            return indices[0] != indices[1]
        passes = [self.run.passes.get(key) for key in keys]
        orders = [each.ended.order if each.ended else None for each in passes]
        if None not in orders:
            return orders[0] != orders[1]
        facts = [each.begun.sampler_facts if each.begun else {} for each in passes]
        return all(each.get("num_replicas", 1) > 1 for each in facts) and facts[0].get("rank") != facts[1].get("rank")


def _pass(found: Identical, rank: int) -> Pass:
    """The pass of the first of the same inputs, on a rank."""
    return attempt_of(found.first), rank, found.first.loader or 0, found.first.number or 0
