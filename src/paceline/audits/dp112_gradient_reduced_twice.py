"""Gradients that DDP has averaged are summed or divided once more.

What it finds:
    Gradients whose norm changes by exactly the number of ranks between the last backward pass, when DDP has averaged
    them, and the optimizer step.

Why it matters:
    The gradient is N times too long or too short. SGD then trains with another learning rate; Adam hides it in the
    loss, but not in clipping or weight decay.

Repair:
    Remove the reduction, or the division by the world size, from the script: DDP has done both.

Known problems:
    Steps that clip are not judged. A division by the number of micro-steps is left alone. A multiplication by the
    world size without a reduction is right where the loss is a share of a global sum; it is only mentioned.

References:
    F129. https://github.com/pytorch/torchtitan/pull/2323
"""

from __future__ import annotations

import math

from paceline.audits.across_ranks import Earliest
from paceline.audits.audit import Audit
from paceline.audits.run_state import RunState
from paceline.records.event import Event, Severity
from paceline.records.observed_rank import ObservedStep, OptimizerSeen
from paceline.records.schema import Finding

_TEXTS: dict[str, tuple[Severity, str, str]] = {
    "summed": (
        "error",
        "gradients that DDP has averaged are summed over ranks once more: each is {world} times too large",
        "remove the all_reduce of gradients: DDP has averaged them during backward()",
    ),
    "divided": (
        "error",
        "gradients are divided by the world size on top of DDP's mean: each is {world} times too small",
        "remove the division by the world size: DDP has averaged gradients during backward()",
    ),
    "multiplied": (
        "info",
        "gradients are multiplied by the world size after DDP's mean: right only where each loss is a share of a "
        "global sum",
        "keep it where the loss is divided by a count over all ranks, else remove it",
    ),
    "again": (
        "info",
        "gradients that DDP has averaged are averaged once more, which costs time and changes nothing",
        "remove the all_reduce of gradients: DDP has averaged them during backward()",
    ),
}
"""Severity, message and advice."""


class GradientReducedTwice(Audit):
    """Compares norms of gradients after the backward pass and at the step."""

    code, name, topic = "DP112", "gradient-reduced-twice", "gradients"
    faults = ("F129",)
    needs = ("steps", "fingerprints")

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._found: dict[str, Earliest[ObservedStep]] = {kind: Earliest() for kind in _TEXTS}
        self._outside = False
        self._compared: set[int] = set()

    def feed(self, rank: int, event: Event) -> None:
        if isinstance(event, OptimizerSeen):
            self._outside |= bool(event.outside)
        if not isinstance(event, ObservedStep):
            return
        ratio = self._ratio(event)
        if ratio is None:
            return
        self._compared.add(event.step)
        kind = self._kind(event, ratio)
        if kind is not None:
            self._found[kind].add(event.step, rank, event)

    def _ratio(self, step: ObservedStep) -> float | None:
        """How the norm changed; None where DDP did not reduce these gradients, or where they were clipped."""
        reduced = bool(step.synchronized) and step.synchronized[-1]
        after, taken = step.norm_after_backward, step.norm_at_step
        clipped = step.clips > 0 and not step.norm_before_clip
        if self.world < 2 or not reduced or clipped or step.backwards_unwrapped or not after or taken is None:
            return None
        ratio = taken * step.unscaled_by / after
        return ratio if math.isfinite(ratio) else None

    def _kind(self, step: ObservedStep, ratio: float) -> str | None:
        if _close(ratio, self.world):
            return "summed" if step.own_reductions else "multiplied"
        if _close(ratio, 1 / self.world):
            return "divided" if step.backwards != self.world else None
        return "again" if step.own_reductions and _close(ratio, 1.0) else None

    def findings(self) -> list[Finding]:
        """One for each kind that at least two recorded steps show."""
        found = []
        for kind, first in self._found.items():
            step = first.value
            if step is None or len(first.steps) < 2 or (kind == "again" and self._outside):
                continue
            severity, message, advice = _TEXTS[kind]
            found.append(
                self.finding(
                    severity,
                    f"step {step.step}: {message.format(world=self.world)}",
                    advice,
                    place=step.reduce_place or step.step_place,
                    rank=min(first.ranks),
                    step=step.step,
                    steps=sorted(first.steps)[:20],
                    norm_after_backward=step.norm_after_backward,
                    norm_at_step=step.norm_at_step,
                    own_reductions=step.own_reductions,
                )
            )
        return found

    def looked_at(self) -> str:
        return f"norms of gradients before and at {len(self._compared)} steps" if self._compared else ""


def _close(ratio: float, to: float) -> bool:
    return math.isclose(ratio, to, rel_tol=1e-3)
