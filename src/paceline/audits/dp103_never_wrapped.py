"""A process group exists and no model is wrapped: nothing keeps the replicas equal.

What it finds:
    Ranks of one process group that take optimizer steps without a wrapped model and hold different parameters. Also
    gradients that are reduced by hand on parameters that were never made equal.

Why it matters:
    Each rank trains a model of its own on its part of the data. Rank 0's is saved: N times the cost for the result of
    1/N of the data.

Repair:
    Wrap the model: `model = DDP(model)`. A script that reduces gradients by hand broadcasts the parameters once before
    the first step.

Known problems:
    Independent models on purpose, as in an ensemble, look the same where each rank reads the same data: then it is a
    warning.

References:
    F39. https://github.com/vwxyzjn/cleanrl/issues/476
"""

from __future__ import annotations

from paceline.audits.across_ranks import Earliest
from paceline.audits.audit import ReplicaAudit
from paceline.audits.divergence import Difference
from paceline.audits.loader_passes import replicas_of
from paceline.audits.replicas import effect, evidence
from paceline.audits.run_state import RunState
from paceline.records.event import Event, Severity
from paceline.records.observed import Collective
from paceline.records.observed_rank import LoaderBegun, ObservedStep
from paceline.records.schema import Finding

_LARGE_BYTES = 1024
"""A collective above this may carry gradients; losses and counts are smaller."""


class NeverWrapped(ReplicaAudit):
    """Judges runs with a process group and without a wrapped model."""

    code, name, topic = "DP103", "never-wrapped", "replicas"
    faults = ("F39",)
    needs = ("steps", "wrappers", "fingerprints")

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._first: Earliest[ObservedStep] = Earliest()
        self._reductions = 0
        self._large = False
        self._loaders = 0
        self._sharded = False
        self._subsets: dict[tuple[int, int], set[str | None]] = {}

    def feed(self, rank: int, event: Event) -> None:
        if isinstance(event, ObservedStep):
            self._first.add(event.step, rank, event)
            self._reductions += event.reductions or 0 if event.step > 1 else 0
        elif isinstance(event, Collective):
            self._large |= event.bytes > _LARGE_BYTES and (bool(event.step) or event.by_backward)
        elif isinstance(event, LoaderBegun):
            self._loaders += 1
            self._sharded |= replicas_of(event) > 1
            self._subsets.setdefault((event.loader, event.number), set()).add(event.subset)

    def findings(self) -> list[Finding]:
        groups = self.replicas.groups
        together = len(groups) == self.world > 1 and all(each.world == self.world for each in groups.values())
        if not together or self.replicas.models or self._first.value is None:
            return []
        difference = self.replicas.first()
        if difference is not None:
            return [self._found(difference)]
        quiet = not (self._reductions or self._large or self.replicas.reduced_by_hand or self.replicas.averaged)
        return [self._found(None)] if self.replicas.unobserved and quiet else []

    def _found(self, difference: Difference | None) -> Finding:
        step = self._first.value
        assert step is not None
        return self.finding(
            self._severity(difference),
            self._message(difference),
            "broadcast the parameters from rank 0 once before the first step, or wrap the model in DDP"
            if self._gradients_agree()
            else "wrap the model before the first step: model = DDP(model)",
            place=step.step_place or step.backward_place,
            rank=difference.ranks[0] if difference else None,
            step=difference.step if difference else step.step,
            **evidence(difference),
        )

    def _message(self, difference: Difference | None) -> str:
        if difference is None:
            return f"no model is wrapped and no step reduces gradients: each of {self.world} ranks trains its own model"
        if self._gradients_agree():
            return f"gradients are reduced by hand, but the parameters were never made equal: {effect(difference)}"
        return (
            f"no model is wrapped in DDP, so gradients are not reduced: {effect(difference)}; "
            f"each of {self.world} ranks trains its own model"
        )

    def _severity(self, difference: Difference | None) -> Severity:
        apart = self._sharded or any(len(digests) > 1 for digests in self._subsets.values())
        one_by_one = self._loaders > 0 and not apart and not self._gradients_agree()
        return "warning" if difference is None or one_by_one else "error"

    def _gradients_agree(self) -> bool:
        compared = any(moment == "gradients" for _, moment in self.replicas.compared)
        return compared and not self.replicas.differences("gradient")
