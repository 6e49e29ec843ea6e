"""Gradients are accumulated over micro-steps, and DDP reduces them in each.

What it finds:
    Optimizer steps with several forward and backward passes, all of which DDP reduces.

Why it matters:
    Only the sum counts, so all reductions but the last are wasted. The result is right.

Repair:
    Run the forward and the backward pass of all micro-steps but the last within `ddp.no_sync()`. Around `backward()`
    alone it has no effect, since DDP decides in `forward()`.

Known problems:
    Methods that need each gradient, as SAM, look the same. `no_sync` needs memory for unreduced gradients.

References:
    F26, F28. https://github.com/pytorch/pytorch/issues/43201
"""

from __future__ import annotations

from paceline.audits.across_ranks import Earliest
from paceline.audits.audit import Audit
from paceline.audits.run_state import RunState
from paceline.audits.source_text import text_at
from paceline.records.event import Event
from paceline.records.observed_rank import ObservedStep
from paceline.records.schema import Finding


class AccumulationWithoutNoSync(Audit):
    """Counts reductions that could be left out."""

    code, name, topic = "DP115", "accumulation-without-no-sync", "gradients"
    faults = ("F28", "F26")
    needs = ("steps", "wrappers")

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._first: Earliest[ObservedStep] = Earliest()
        self._judged: set[int] = set()
        self._optimizers: set[int] = set()

    def feed(self, rank: int, event: Event) -> None:
        if not isinstance(event, ObservedStep):
            return
        self._optimizers.add(event.optimizer)
        self._judged.add(event.step)
        micro = len(event.synchronized)
        if micro > 1 and event.forwards == event.backwards == micro and all(event.synchronized):
            self._first.add(event.step, rank, event)

    def findings(self) -> list[Finding]:
        """At most one, where at least three recorded steps of the only optimizer show it."""
        step = self._first.value
        if step is None or self.world < 2 or len(self._first.steps) < 3 or len(self._optimizers) > 1:
            return []
        backward = text_at(step.backward_place, before=3) or ""
        faults = ("F26",) if "no_sync(" in backward else ("F28",) if backward else ("F28", "F26")
        micro = step.backwards
        return [
            self.finding(
                "info",
                f"each optimizer step accumulates {micro} micro-steps and DDP reduces gradients in every one: "
                f"{micro - 1} of {micro} reductions could be left out",
                "run forward and backward of all micro-steps but the last within ddp.no_sync()",
                faults=faults,
                place=step.forward_place or step.backward_place,
                step=step.step,
                micro_steps=micro,
                steps=len(self._first.steps),
            )
        ]

    def looked_at(self) -> str:
        return f"reductions in {len(self._judged)} steps" if self._judged and self.world > 1 else ""
