"""The loss scale of a GradScaler differs between ranks.

What it finds:
    Ranks that take the same optimizer step with different loss scales.

Why it matters:
    DDP averages gradients while they are scaled. Each rank then divides the same mean by its own scale, so the ranks
    apply different gradients and train different models.

Repair:
    Use one initial scale on all ranks, restore the scaler's state on all ranks, and never skip a step on one rank
    alone.

Known problems:
    None.

References:
    F35. https://github.com/pytorch/pytorch/issues/136009
"""

from __future__ import annotations

from paceline.audits.across_ranks import FirstDifference
from paceline.audits.audit import Audit
from paceline.audits.run_state import RunState
from paceline.audits.wording import ranks_text
from paceline.records.event import Event
from paceline.records.observed_rank import ObservedStep
from paceline.records.schema import Finding


class LossScaleDiffers(Audit):
    """Compares the loss scales of all ranks at each recorded step."""

    code, name, topic = "DP133", "loss-scale-differs", "schedule"
    faults = ("F35",)
    needs = ("steps",)
    explains_divergence = True

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._steps: FirstDifference[ObservedStep] = FirstDifference(lambda each: each.loss_scale)

    def feed(self, rank: int, event: Event) -> None:
        if isinstance(event, ObservedStep) and event.loss_scale is not None:
            self._steps.add((event.attempt, event.optimizer, event.step), rank, event, self.world)

    def findings(self) -> list[Finding]:
        """At most one, for the first step at which scales differ."""
        ranks, differing = self._steps.ranks, self._steps.differing
        if not differing:
            return []
        base, other = ranks[min(ranks)], ranks[differing[0]]
        return [
            self.finding(
                "error",
                f"step {other.step}: the loss scale is {base.loss_scale:g} on rank {min(ranks)} and "
                f"{other.loss_scale:g} on {ranks_text(differing)}: each rank divides the same averaged gradient by "
                "another number",
                "use the same GradScaler settings and state on all ranks, and skip a step on all ranks or on none",
                place=other.step_place,
                rank=differing[0],
                step=other.step,
                scales={str(rank): each.loss_scale for rank, each in ranks.items()},
            )
        ]

    def looked_at(self) -> str:
        return f"loss scales at {self._steps.compared} steps" if self._steps.compared else ""
