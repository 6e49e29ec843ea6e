"""A wrapped model was converted or moved, and DDP's hooks stayed with the old parameters.

What it finds:
    `.cpu()`, `.half()`, `.to(...)` on a model that DDP had wrapped, in a run that trains on and whose ranks then hold
    different parameters.

Why it matters:
    DDP hooks the gradient accumulators of the parameters that it was given. A change of type or device replaces them,
    and a conversion may replace the parameters: gradients are no longer reduced, without a message.

Repair:
    Move and convert first, wrap last. To save on the CPU, copy the state:
    `{name: value.cpu() for name, value in ddp.module.state_dict().items()}`.

Known problems:
    A model that is moved after its last step is left alone.

References:
    F45, F54. https://github.com/pytorch/pytorch/issues/104336
"""

from __future__ import annotations

from paceline.audits.across_ranks import Earliest
from paceline.audits.audit import ReplicaAudit
from paceline.audits.divergence import Difference
from paceline.audits.replicas import effect, evidence
from paceline.audits.run_state import RunState
from paceline.audits.wording import when_text
from paceline.records.event import Event
from paceline.records.observed_rank import ModelMoved
from paceline.records.schema import Finding


class MovedAfterWrap(ReplicaAudit):
    """Connects conversions of wrapped models with the ranks' parameters."""

    code, name, topic = "DP116", "moved-after-wrap", "replicas"
    faults = ("F45", "F54")
    needs = ("wrappers", "fingerprints")

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._first: Earliest[ModelMoved] = Earliest()

    def feed(self, rank: int, event: Event) -> None:
        if isinstance(event, ModelMoved) and (event.replaced or event.converted):
            self._first.add(event.step, rank, event)

    def findings(self) -> list[Finding]:
        """At most one: an error where the ranks diverge, a warning where nothing could be compared."""
        moved = self._first.value
        if moved is None or self._first.at is None:
            return []
        difference = self.replicas.since(moved.step)
        if difference is not None:
            return [self._found(moved, difference)]
        return [self._found(moved, None)] if self.replicas.never_compared_after(moved.step) else []

    def _found(self, moved: ModelMoved, difference: Difference | None) -> Finding:
        assert self._first.at is not None
        what = (
            f"replaced {moved.replaced} parameters"
            if moved.replaced
            else f"changed type or device of {moved.converted} parameters"
        )
        shown = effect(difference) if difference else "DDP may no longer reduce their gradients"
        return self.finding(
            "error" if difference else "warning",
            f"a conversion {when_text(moved.step)} {what} of the wrapped model: {shown}",
            "move and convert the model before DDP(model); to save it, copy its state_dict() to the CPU instead",
            faults=("F45",) if moved.replaced else ("F45", "F54") if difference else ("F54",),
            place=moved.place,
            rank=difference.ranks[0] if difference else self._first.at[1],
            step=moved.step,
            replaced=moved.replaced,
            converted=moved.converted,
            **evidence(difference),
        )
