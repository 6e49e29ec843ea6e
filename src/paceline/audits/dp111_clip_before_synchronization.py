"""Gradients are clipped before they are the gradients of the step.

What it finds:
    Clipping that comes before the last backward pass of a step: within the accumulation window, or before the only
    backward pass. Clipping while a GradScaler's factor is still in the gradients.

Why it matters:
    The threshold then applies to a part of the gradient, before the mean over ranks and micro-steps, or to a gradient
    65,536 times too long. All ranks stay equal, but the result is not that of one process.

Repair:
    Clip once, between the last `backward()` and `optimizer.step()`; with a GradScaler call `scaler.unscale_(optimizer)`
    before.

Known problems:
    Methods that clip in between on purpose (per-task gradients, SAM with clipping in both passes) are a warning. A
    threshold that is multiplied by the scale by hand is reported. Scripts with several optimizers are not judged.

References:
    F30. https://pytorch.org/docs/stable/notes/amp_examples.html
"""

from __future__ import annotations

from paceline.audits.across_ranks import Earliest
from paceline.audits.audit import Audit
from paceline.audits.run_state import RunState
from paceline.audits.wording import ranks_text
from paceline.records.event import Event, Severity
from paceline.records.observed_rank import ObservedStep
from paceline.records.schema import Finding


class ClipBeforeSynchronization(Audit):
    """Counts steps that clip too early."""

    code, name, topic = "DP111", "clip-before-synchronization", "gradients"
    faults = ("F30",)
    needs = ("steps", "clips")

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._early: Earliest[ObservedStep] = Earliest()
        self._scaled: Earliest[ObservedStep] = Earliest()
        self._optimizers: set[tuple[int, int]] = set()
        self._clipped: set[int] = set()

    def feed(self, rank: int, event: Event) -> None:
        if not isinstance(event, ObservedStep):
            return
        self._optimizers.add((rank, event.optimizer))
        if event.clips:
            self._clipped.add(event.step)
        if event.clips_before_backward > 0:
            self._early.add(event.step, rank, event)
        if event.clips_while_scaled > 0 and event.loss_scale not in (None, 1.0):
            self._scaled.add(event.step, rank, event)

    def findings(self) -> list[Finding]:
        """One for each of the two mistakes, where at least two recorded steps show it."""
        found = []
        several = len({rank for rank, _ in self._optimizers}) < len(self._optimizers)
        early, scaled = self._early.value, self._scaled.value
        if early is not None and len(self._early.steps) > 1 and not several:
            found.append(self._clipped_early(early))
        if scaled is not None and len(self._scaled.steps) > 1:
            found.append(
                self.finding(
                    "error",
                    f"{ranks_text(self._scaled.ranks)}: step {scaled.step} clips gradients that still carry "
                    f"the loss scale {scaled.loss_scale:g}, so the threshold is that many times too small",
                    "call scaler.unscale_(optimizer) before clip_grad_norm_()",
                    place=scaled.clip_place,
                    rank=min(self._scaled.ranks),
                    step=scaled.step,
                    steps=sorted(self._scaled.steps)[:20],
                )
            )
        return found

    def _clipped_early(self, step: ObservedStep) -> Finding:
        inside = (
            f"before the last of {step.backwards} backward passes, so a part of the gradient is clipped alone"
            if step.backwards > 1
            else "before its backward pass, so the gradient itself is not clipped"
        )
        return self.finding(
            _severity(step),
            f"{ranks_text(self._early.ranks)}: step {step.step} clips gradients {inside}",
            "clip once, after the last backward pass and right before optimizer.step()",
            place=step.clip_place,
            rank=min(self._early.ranks),
            step=step.step,
            steps=sorted(self._early.steps)[:20],
            clips=step.clips,
            clips_before_backward=step.clips_before_backward,
        )

    def looked_at(self) -> str:
        return f"clipping in {len(self._clipped)} steps" if self._clipped else ""


def _severity(step: ObservedStep) -> Severity:
    """Two synchronized passes may be SAM's, and several backward passes of one forward pass those of several tasks."""
    several_tasks = step.backwards > max(step.forwards, 1)
    two_passes = step.backwards == 2 and all(step.synchronized)
    return "warning" if several_tasks or two_passes else "error"
