"""The trainable parameters of a model changed after it was wrapped.

What it finds:
    Parameters that require gradients now and did not when DDP registered its parameters (unfrozen, added, replaced),
    and parameters that no longer do.

Why it matters:
    DDP fixes the set of parameters that it reduces in its constructor. A parameter that was frozen then is trained by
    each rank on its own gradients.

Repair:
    Freeze and unfreeze before wrapping, and wrap again after each change: `model = DDP(model.module)`.

Known problems:
    Sets that are toggled in each phase, as in a GAN, are left alone once they come back.

References:
    F43. https://github.com/Lightning-AI/pytorch-lightning/issues/20340
"""

from __future__ import annotations

from paceline.audits.across_ranks import Earliest
from paceline.audits.audit import ReplicaAudit
from paceline.audits.divergence import Difference
from paceline.audits.replicas import among, effect, evidence
from paceline.audits.run_state import RunState
from paceline.audits.wording import names_text
from paceline.records.event import Event
from paceline.records.observed_rank import ModelMoved, ModelWrapped, TrainableChanged
from paceline.records.schema import Finding


class TrainableSetChanged(ReplicaAudit):
    """Follows what wrappers registered, and compares what came later."""

    code, name, topic = "DP105", "trainable-set-changed", "replicas"
    faults = ("F43",)
    needs = ("wrappers", "fingerprints")

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._added: Earliest[TrainableChanged] = Earliest()
        self._removed: Earliest[TrainableChanged] = Earliest()
        self._now: dict[tuple[int, int], TrainableChanged] = {}
        self._models: dict[int, str] = {}
        self._moved: set[tuple[int, int]] = set()

    def feed(self, rank: int, event: Event) -> None:
        """Note each change; a model that is wrapped again starts anew, one that was converted is DP116's."""
        if isinstance(event, ModelMoved) and event.replaced:
            self._moved.add((rank, event.number))
        elif isinstance(event, TrainableChanged) and (rank, event.number) not in self._moved:
            self._now[rank, event.number] = event
            if event.added:
                self._added.add(event.step, rank, event)
            elif event.removed:
                self._removed.add(event.step, rank, event)
        elif isinstance(event, ModelWrapped):
            self._models[event.number] = event.model
            for key in [key for key in self._now if key[0] == rank and self._models.get(key[1]) == event.model]:
                del self._now[key]

    def findings(self) -> list[Finding]:
        added, removed = self._added.value, self._removed.value
        if added is not None:
            names = _named(added)
            difference = self.replicas.since(added.step, among(names))
            if difference is not None:
                return [self._found(added, names, difference)]
            still = any(each.added for each in self._now.values())
            if still and not self.replicas.reduced_by_hand and self.replicas.never_compared_after(added.step):
                return [self._found(added, names, None)]
        elif removed is not None and any(each.removed for each in self._now.values()):
            difference = self.replicas.since(removed.step)
            if difference is not None:
                return [self._found(removed, _named(removed), difference)]
        return []

    def _found(self, change: TrainableChanged, names: list[str], difference: Difference | None) -> Finding:
        was = "trainable" if change.added else "frozen or replaced"
        became = f"{names_text(names)} became {was} after DDP registered its parameters (step {change.step})"
        shown = f": {effect(difference)}" if difference else ": its gradients are not reduced"
        return self.finding(
            "error" if difference else "warning",
            f"{became}{shown}",
            "freeze and unfreeze before wrapping, and wrap again after each change: model = DDP(model.module)",
            place=change.place,
            rank=difference.ranks[0] if difference else None,
            step=change.step,
            added=change.added,
            removed=change.removed,
            **evidence(difference),
        )


def _named(change: TrainableChanged) -> list[str]:
    """Names in the form that fingerprints use."""
    prefix = f"{change.number}/" if change.number else ""
    names = change.added or change.removed
    return [name if "/" in name else f"{prefix}{name}" for name in names]
