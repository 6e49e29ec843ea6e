"""The learning rate differs between ranks.

What it finds:
    Ranks that take the same optimizer step with different learning rates.

Why it matters:
    Each rank applies the same averaged gradient with its own step size, so the ranks no longer train the same model.
    Rank 0 alone is saved.

Repair:
    Step the scheduler on a value that all ranks share: reduce the validation loss over ranks before
    `scheduler.step(loss)`. Restore optimizers and schedulers on every rank.

Known problems:
    None.

References:
    F84. https://github.com/rmchurch/disruptcnn/issues/3
    F95. https://github.com/bghira/SimpleTuner/pull/2986
"""

from __future__ import annotations

from paceline.audits.across_ranks import FirstDifference
from paceline.audits.audit import Audit
from paceline.audits.run_state import RunState
from paceline.audits.wording import ranks_text
from paceline.records.event import Event
from paceline.records.observed_rank import ObservedStep, StateRestored
from paceline.records.schema import Finding


class LearningRateDiffers(Audit):
    """Compares the learning rates of all ranks at each recorded step."""

    code, name, topic = "DP131", "learning-rate-differs", "schedule"
    faults = ("F84", "F95")
    needs = ("steps",)
    explains_divergence = True

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._steps: FirstDifference[ObservedStep] = FirstDifference(lambda each: each.lr)
        self._restored: dict[int, StateRestored] = {}

    def feed(self, rank: int, event: Event) -> None:
        if isinstance(event, StateRestored) and event.what in ("optimizer", "scheduler"):
            self._restored.setdefault(rank, event)
        elif isinstance(event, ObservedStep):
            self._steps.add((event.attempt, event.optimizer, event.step), rank, event, self.world)

    def findings(self) -> list[Finding]:
        """At most one, for the first step at which rates differ."""
        ranks, differing = self._steps.ranks, self._steps.differing
        if not differing:
            return []
        base, other = ranks[min(ranks)], ranks[differing[0]]
        differ = f"rank {min(ranks)} uses learning rate {base.lr[0]:g}, {ranks_text(differing)} {other.lr[0]:g}"
        rates = {str(rank): each.lr for rank, each in ranks.items()}
        if 0 < len(self._restored) < self.world:
            first = self._restored[min(self._restored)]
            return [
                self.finding(
                    "error",
                    f"only {ranks_text(self._restored)} restored the {first.what} ({first.name}); in step "
                    f"{other.step} {differ}",
                    f"call {first.what}.load_state_dict() on every rank",
                    faults=("F95",),
                    place=first.place,
                    rank=min(self._restored),
                    step=other.step,
                    rates=rates,
                )
            ]
        return [
            self.finding(
                "error",
                f"step {other.step}: {differ}; the ranks no longer train the same model",
                "reduce the value that the scheduler decides on over all ranks before scheduler.step(value)",
                faults=("F84",),
                place=other.scheduler_place or other.step_place,
                rank=differing[0],
                step=other.step,
                rates=rates,
            )
        ]

    def looked_at(self) -> str:
        return f"learning rates at {self._steps.compared} steps" if self._steps.compared else ""
