"""The optimizer steps on gradients that were accumulated within `no_sync` and never reduced.

What it finds:
    Optimizer steps whose last forward and backward pass ran within `no_sync`, in a run whose ranks then hold different
    parameters.

Why it matters:
    `no_sync` leaves gradients on each rank until a later pass reduces their sum. Where the step comes first, each rank
    applies the gradients of its own batches and the ranks diverge.

Repair:
    Leave `no_sync` for the micro-step that is followed by `optimizer.step()`, the last partial window included.

Known problems:
    None: local SGD, reductions by hand and SAM keep or restore equal parameters and are left alone.

References:
    F25. https://github.com/modelscope/FunASR/pull/3472
"""

from __future__ import annotations

from paceline.audits.across_ranks import Earliest
from paceline.audits.audit import ReplicaAudit
from paceline.audits.replicas import effect, evidence, of_wrapped
from paceline.audits.run_state import RunState
from paceline.records.event import Event
from paceline.records.observed_rank import ObservedStep
from paceline.records.schema import Finding


class StepWithoutSynchronization(ReplicaAudit):
    """Looks at the last micro-step before each optimizer step."""

    code, name, topic = "DP106", "step-without-synchronization", "gradients"
    faults = ("F25",)
    needs = ("steps", "wrappers", "fingerprints")

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._first: Earliest[ObservedStep] = Earliest()

    def feed(self, rank: int, event: Event) -> None:
        if isinstance(event, ObservedStep) and event.synchronized and not event.synchronized[-1]:
            self._first.add(event.step, rank, event)

    def findings(self) -> list[Finding]:
        """At most one, for the first such step, where the ranks diverge at it or later."""
        step = self._first.value
        difference = self.replicas.since(step.step, of_wrapped) if step is not None else None
        if step is None or difference is None:
            return []
        of = (
            f"the last of {len(step.synchronized)} micro-steps" if len(step.synchronized) > 1 else "the only micro-step"
        )
        return [
            self.finding(
                "error",
                f"{of} before optimizer step {step.step} ran within no_sync(), so its gradients were not reduced; "
                f"{effect(difference)}",
                "leave no_sync() for the micro-step that optimizer.step() follows, also in the last partial window",
                place=step.forward_place or step.step_place,
                rank=difference.ranks[0],
                step=step.step,
                synchronized=step.synchronized,
                **evidence(difference),
            )
        ]
