"""A loss or a gradient is not a finite number.

What it finds:
    The first NaN or infinity in the loss or the gradients, and the ranks that had it at that step.

Why it matters:
    DDP averages gradients, so a NaN of one rank is in the parameters of all ranks after the step. Which rank it came
    from is then no longer visible.

Repair:
    Look at the batch that this rank had at this step. To skip such a step, decide on all ranks together: reduce the
    flag with `all_reduce(flag, op=MAX)` first.

Known problems:
    A GradScaler makes infinite gradients on purpose while it looks for its scale; these are only mentioned.

References:
    F83. https://pytorch.org/docs/stable/notes/amp_examples.html
"""

from __future__ import annotations

from collections import defaultdict

from paceline.audits.audit import Audit
from paceline.audits.run_state import RunState
from paceline.audits.wording import ranks_text
from paceline.records.event import Event, Severity
from paceline.records.observed_rank import NonFinite, ObservedStep
from paceline.records.schema import Finding


class NonFiniteValues(Audit):
    """Looks for the first step at which any rank had such a value; the loss comes before its gradients."""

    code, name, topic = "DP134", "non-finite", "gradients"
    faults = ("F83",)
    needs = ("backward", "steps")

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._seen: dict[tuple[int, str], dict[int, NonFinite]] = defaultdict(dict)
        self._scaled: set[int] = set()
        self._last = 0

    def feed(self, rank: int, event: Event) -> None:
        if isinstance(event, NonFinite):
            self._seen[event.step, event.what].setdefault(rank, event)
        elif isinstance(event, ObservedStep):
            self._last = max(self._last, event.step)
            if event.loss_scale not in (None, 1.0):
                self._scaled.add(rank)

    def findings(self) -> list[Finding]:
        if not self._seen:
            return []
        step, what = min(self._seen, key=lambda key: (key[0], key[1] != "loss"))
        ranks = self._seen[step, what]
        first = ranks[min(ranks)]
        count = f"{len(ranks)} of {self.world} ranks" if self.world > 1 else "the only rank"
        text = "a loss" if what == "loss" else "gradients"
        spread = "; DDP's mean carries it into the parameters of all ranks" if self.world > 1 else ""
        scaled = bool(self._scaled & set(ranks)) and not (what == "loss" and "nan" in first.value.lower())
        severity: Severity = "info" if scaled else "warning"
        effect = "; the GradScaler skips such a step and lowers its scale" if scaled else spread
        return [
            self.finding(
                severity,
                f"{ranks_text(ranks)}: {text} with the value {first.value} at step {step} ({count}){effect}",
                "look at the batch of this rank at this step; to skip such a step, agree on it over all ranks first",
                place=first.place,
                rank=min(ranks),
                step=step,
                what=what,
                ranks=sorted(ranks),
            )
        ]

    def looked_at(self) -> str:
        return f"losses and gradients up to step {self._last}" if self._last else ""
