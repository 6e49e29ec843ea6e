"""A training step runs the model inside the wrapper, so DDP never reduces its gradients.

What it finds:
    Backward passes that no forward pass of the wrapped model preceded, in a run whose ranks then hold different
    parameters.

Why it matters:
    DDP arms its gradient reduction in its own `forward`. A pass through `ddp.module`, or through the variable that was
    wrapped, leaves each rank with the gradients of its own batch: every rank trains on its part of the data only.

Repair:
    Call the wrapper: `ddp(x)`. Dispatch other methods through `forward`, since DDP intercepts nothing else.

Known problems:
    The line of the call, and the lines above that assign what it calls, decide between `.module` and the inner
    variable. Where the file cannot be read, both are named.

References:
    F37, F38. https://github.com/jingyaogong/minimind/issues/853
"""

from __future__ import annotations

import itertools
import re

from paceline.audits.across_ranks import Earliest
from paceline.audits.audit import ReplicaAudit
from paceline.audits.divergence import Difference
from paceline.audits.replicas import effect, evidence, of_wrapped
from paceline.audits.run_state import RunState
from paceline.audits.source_text import text_at
from paceline.records.event import Event
from paceline.records.observed_rank import GradientTaken, ObservedStep, OptimizerSeen
from paceline.records.place import Place
from paceline.records.schema import Finding

_UNWRAPS = re.compile(r"\.module\b|unwrap")
_CALLED = re.compile(r"([A-Za-z_][\w.]*)\(")
_ABOVE = 100
"""Lines above the call in which a name may be assigned."""
_ADVICE = "call the wrapper itself, ddp(x), and dispatch other methods through its forward()"


class ForwardBypassesWrapper(ReplicaAudit):
    """Looks for backward passes without a wrapped forward pass, and for their effect."""

    code, name, topic = "DP102", "forward-bypasses-wrapper", "replicas"
    faults = ("F37", "F38")
    needs = ("steps", "wrappers", "fingerprints")

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._unwrapped: Earliest[ObservedStep] = Earliest()
        self._only: dict[int, set[int]] = {}
        self._optimizers: dict[tuple[int, int], bool] = {}
        self._taken: Earliest[GradientTaken] = Earliest()
        self._forward: Place | None = None

    def feed(self, rank: int, event: Event) -> None:
        if isinstance(event, ObservedStep) and event.backwards_unwrapped > 0:
            self._unwrapped.add(event.step, rank, event)
            if event.forwards == 0 and self._forward is None:
                self._forward = event.forward_place
            wrapped = self._optimizers.get((rank, event.optimizer), False)
            if wrapped and event.forwards == 0 and not event.reductions:
                self._only.setdefault(rank, set()).add(event.step)
        elif isinstance(event, OptimizerSeen):
            self._optimizers[rank, event.number] = event.wrapped > 0
        elif isinstance(event, GradientTaken):
            self._taken.add(event.step, rank, event)

    def findings(self) -> list[Finding]:
        """At most one: an error with a difference between ranks, a warning where nothing could be compared."""
        step = self._unwrapped.value
        if step is None or not self.replicas.models:
            return []
        difference = self.replicas.since(step.step, of_wrapped)
        if difference is not None and not self._by_autograd_grad(difference):
            return [self._found(step, difference)]
        untouched = not (self.replicas.averaged or self.replicas.reduced_by_hand or self._taken.ranks)
        everywhere = len(self._only) == self.world and all(len(steps) > 1 for steps in self._only.values())
        return [self._found(step, None)] if self.replicas.unobserved and untouched and everywhere else []

    def _by_autograd_grad(self, difference: Difference) -> bool:
        return self._taken.at is not None and self._taken.at[0] <= difference.step

    def _found(self, step: ObservedStep, difference: Difference | None) -> Finding:
        assert self._unwrapped.at is not None
        forward = step.forward_place or self._forward
        place = forward or step.backward_place
        shown = f"; {effect(difference)}" if difference else ""
        return self.finding(
            "error" if difference else "warning",
            f"step {step.step} trains the model without its DDP wrapper: gradients are not reduced{shown}; "
            f"each rank trains on 1/{self.world} of the data",
            _ADVICE,
            faults=_faults(forward),
            place=place,
            rank=difference.ranks[0] if difference else self._unwrapped.at[1],
            step=step.step,
            backwards_unwrapped=step.backwards_unwrapped,
            **evidence(difference),
        )


def _faults(forward: Place | None) -> tuple[str, ...]:
    text = text_at(forward)
    if text is None:
        return ("F37", "F38")
    if _UNWRAPS.search(text):
        return ("F37",)
    above = text_at(forward, before=_ABOVE) or ""
    names = {name for called in _CALLED.findall(text) for name in itertools.accumulate(called.split("."), _dotted)}
    inner = any(_UNWRAPS.search(value) for name in names for value in _values(name, above))
    return ("F37",) if inner else ("F38",)


def _dotted(owner: str, attribute: str) -> str:
    return f"{owner}.{attribute}"


def _values(name: str, text: str) -> list[str]:
    """The expression assigned to a name: `ddp.module` for `net = ddp.module`."""
    return re.findall(rf"^\s*{re.escape(name)}\s*=(?!=)(.*)$", text, re.MULTILINE)
