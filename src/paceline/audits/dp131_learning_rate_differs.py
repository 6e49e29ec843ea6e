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

from paceline.audits.across_ranks import AcrossRanks
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
        self._steps: AcrossRanks[ObservedStep] = AcrossRanks()
        self._compared = 0
        self._restored: dict[int, StateRestored] = {}
        self._first: dict[int, ObservedStep] | None = None

    def feed(self, rank: int, event: Event) -> None:
        """Compare the steps of one number once every rank has taken it."""
        if isinstance(event, StateRestored) and event.what in ("optimizer", "scheduler"):
            self._restored.setdefault(rank, event)
        if not isinstance(event, ObservedStep):
            return
        ranks = self._steps.add((event.optimizer, event.step), rank, event, self.world)
        if ranks is None:
            return
        self._compared += 1
        if self._first is None and len({tuple(each.lr) for each in ranks.values()}) > 1:
            self._first = ranks

    def findings(self) -> list[Finding]:
        """At most one, for the first step at which rates differ."""
        if self._first is None:
            return []
        base, *others = self._first.items()
        parted = [rank for rank, each in others if each.lr != base[1].lr]
        other = self._first[parted[0]]
        rates = {str(rank): each.lr for rank, each in self._first.items()}
        if 0 < len(self._restored) < self.world:
            first = self._restored[min(self._restored)]
            return [
                self.finding(
                    "error",
                    f"only {ranks_text(self._restored)} restored the {first.what} ({first.name}); in step "
                    f"{other.step} rank {base[0]} uses learning rate {base[1].lr[0]:g}, {ranks_text(parted)} "
                    f"{other.lr[0]:g}",
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
                f"step {other.step}: rank {base[0]} uses learning rate {base[1].lr[0]:g}, {ranks_text(parted)} "
                f"{other.lr[0]:g}; the ranks no longer train the same model",
                "reduce the value that the scheduler decides on over all ranks before scheduler.step(value)",
                faults=("F84",),
                place=other.scheduler_place or other.step_place,
                rank=parted[0],
                step=other.step,
                rates=rates,
            )
        ]

    def looked_at(self) -> str:
        """How many steps were compared."""
        return f"learning rates at {self._compared} steps" if self._compared and self.world > 1 else ""
