"""An optimizer trains parameters that no wrapper synchronizes.

What it finds:
    Parameters of an optimizer that belong to no wrapped model (a loss with weights, a second network, a projection
    head) and that differ between ranks, while the wrapped parameters agree.

Why it matters:
    DDP reduces gradients of its own parameters only. Each rank trains its own copy of the others, which the shared
    model is then trained against; rank 0's copy is saved.

Repair:
    Wrap that module in DDP as well, or make it a part of the model before wrapping.

Known problems:
    A classifier sharded over ranks by hand looks the same.

References:
    F41. https://github.com/KevinMusgrave/pytorch-metric-learning/issues/710
"""

from __future__ import annotations

from paceline.audits.across_ranks import Earliest
from paceline.audits.audit import ReplicaAudit
from paceline.audits.divergence import Difference
from paceline.audits.replicas import effect, evidence, of_wrapped
from paceline.audits.run_state import RunState
from paceline.audits.wording import names_text
from paceline.records.event import Event
from paceline.records.observed_rank import OptimizerSeen
from paceline.records.schema import Finding


def _outside(name: str) -> bool:
    return not of_wrapped(name)


class ParametersOutsideWrapper(ReplicaAudit):
    """Compares an optimizer's unwrapped parameters between ranks."""

    code, name, topic = "DP104", "parameters-outside-wrapper", "replicas"
    faults = ("F41",)
    needs = ("steps", "wrappers", "fingerprints")

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._first: Earliest[OptimizerSeen] = Earliest()

    def feed(self, rank: int, event: Event) -> None:
        if isinstance(event, OptimizerSeen) and event.outside:
            self._first.add(event.step, rank, event)

    def findings(self) -> list[Finding]:
        """At most one: an error where the parameters differ, a warning where nothing could be compared."""
        seen = self._first.value
        if seen is None or not self.replicas.models:
            return []
        wrapped_too = self.replicas.first(of_wrapped)
        difference = self.replicas.first(_outside)
        if difference is not None and wrapped_too is None:
            return [self._found(seen, difference)]
        trained = seen.without_gradient < seen.parameters - seen.wrapped
        by_script = self.replicas.reduced_by_hand or self.replicas.on_purpose
        observed = self._covered(seen) and not self.replicas.unobserved
        if wrapped_too or by_script or observed or not trained:
            return []
        return [self._found(seen, None)] if any(map(_outside, seen.outside)) else []

    def _covered(self, seen: OptimizerSeen) -> bool:
        """True if fingerprints have them; while none was compared after a step, evidence may still come."""
        stepped = any(moment in ("state", "end") for _, moment in self.replicas.compared)
        return not stepped or self.replicas.covers([name for name in seen.outside if _outside(name)])

    def _found(self, seen: OptimizerSeen, difference: Difference | None) -> Finding:
        names = difference.names if difference else [name for name in seen.outside if _outside(name)]
        shown = (
            effect(difference) if difference else "their gradients are not reduced, so each rank trains its own copy"
        )
        return self.finding(
            "error" if difference else "warning",
            f"{seen.kind} trains parameters outside the DDP wrapper ({names_text(names)}): {shown}",
            f"wrap the module that holds {names[0]} in DDP, or make it part of the model before wrapping",
            place=seen.place,
            rank=difference.ranks[0] if difference else None,
            step=difference.step if difference else seen.step,
            outside=seen.outside,
            **evidence(difference),
        )
