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

from paceline.audits.across_ranks import AcrossRanks
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
        self._steps: AcrossRanks[ObservedStep] = AcrossRanks()
        self._compared: set[int] = set()
        self._first: dict[int, ObservedStep] | None = None

    def feed(self, rank: int, event: Event) -> None:
        """Compare the steps of one number once every rank has taken it."""
        if not isinstance(event, ObservedStep) or event.loss_scale is None:
            return
        ranks = self._steps.add((event.attempt, event.optimizer, event.step), rank, event, self.world)
        if ranks is None or self.world < 2:
            return
        self._compared.add(event.step)
        earlier = self._first is None or event.step < next(iter(self._first.values())).step
        if earlier and len({each.loss_scale for each in ranks.values()}) > 1:
            self._first = ranks

    def findings(self) -> list[Finding]:
        """At most one, for the first step at which scales differ."""
        if self._first is None:
            return []
        (base, step), *others = self._first.items()
        parted = [rank for rank, each in others if each.loss_scale != step.loss_scale]
        other = self._first[parted[0]]
        return [
            self.finding(
                "error",
                f"step {other.step}: the loss scale is {step.loss_scale:g} on rank {base} and {other.loss_scale:g} on "
                f"{ranks_text(parted)}: each rank divides the same averaged gradient by another number",
                "use the same GradScaler settings and state on all ranks, and skip a step on all ranks or on none",
                faults=("F35",),
                place=other.step_place,
                rank=parted[0],
                step=other.step,
                scales={str(rank): each.loss_scale for rank, each in self._first.items()},
            )
        ]

    def looked_at(self) -> str:
        """How many steps were compared."""
        return f"loss scales at {len(self._compared)} steps" if self._compared else ""
