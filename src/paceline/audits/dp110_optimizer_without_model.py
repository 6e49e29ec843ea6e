"""The optimizer holds parameters that are no longer those of the model.

What it finds:
    An optimizer none of whose parameters gets a gradient, while parameters of the wrapped model have gradients and
    belong to no optimizer.

Why it matters:
    The optimizer was built before the parameters were replaced: by new layers, by a conversion, by a copy of the model.
    Its steps change nothing, and the model keeps its first weights.

Repair:
    Build the optimizer last: move, convert and wrap the model, then `torch.optim.SGD(model.parameters(), ...)`.

Known problems:
    None: frozen teachers have no gradients.

References:
    F42. https://github.com/Lightning-AI/pytorch-lightning/issues/2902
"""

from __future__ import annotations

from paceline.audits.audit import Audit
from paceline.audits.run_state import RunState
from paceline.audits.wording import count_text, names_text, ranks_text
from paceline.records.event import Event
from paceline.records.observed_rank import ObservedStep, OptimizerSeen
from paceline.records.schema import Finding


class OptimizerWithoutModel(Audit):
    """Looks for gradients that no optimizer takes."""

    code, name, topic = "DP110", "optimizer-without-model", "replicas"
    faults = ("F42",)
    needs = ("steps", "wrappers")

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._idle: dict[int, OptimizerSeen] = {}
        self._elsewhere: dict[int, list[str]] = {}
        self._partly: dict[int, OptimizerSeen] = {}
        self._trains: set[int] = set()

    def feed(self, rank: int, event: Event) -> None:
        """Note for each rank whether any optimizer gets gradients, and which gradients none takes."""
        if isinstance(event, OptimizerSeen):
            if event.wrapped_with_gradient_elsewhere:
                self._elsewhere.setdefault(rank, event.wrapped_with_gradient_elsewhere)
            if event.step >= 2 and event.without_gradient and event.wrapped_with_gradient_elsewhere:
                self._partly.setdefault(rank, event)  # all optimizers have stepped by now
            if event.without_gradient < event.parameters:
                self._trains.add(rank)
            elif event.parameters > 0:
                self._idle.setdefault(rank, event)
        elif isinstance(event, ObservedStep) and event.norm_at_step:
            self._trains.add(rank)

    def findings(self) -> list[Finding]:
        """At most one, once a second step shows that no other optimizer takes the gradients."""
        ranks = [
            rank
            for rank in sorted(self._idle)
            if rank in self._elsewhere and rank not in self._trains and self.run.replicas.reached.get(rank, 0) >= 2
        ]
        if not ranks:
            return self._replaced()
        idle, elsewhere = self._idle[ranks[0]], self._elsewhere[ranks[0]]
        return [
            self.finding(
                "error",
                f"{ranks_text(ranks)}: none of the {idle.parameters} parameters of {idle.kind} gets a gradient, and "
                f"{names_text(elsewhere)}, which do, belong to no optimizer: nothing trains",
                "build the optimizer from model.parameters() after the last change of the model's layers and device",
                place=idle.place,
                rank=ranks[0],
                step=idle.step,
                parameters=idle.parameters,
                with_gradient_elsewhere=elsewhere,
            )
        ]

    def _replaced(self) -> list[Finding]:
        """Some of an optimizer's parameters are those of a layer that the model no longer has."""
        if not self._partly:
            return []
        rank = min(self._partly)
        seen = self._partly[rank]
        elsewhere = seen.wrapped_with_gradient_elsewhere
        return [
            self.finding(
                "warning",
                f"{ranks_text(self._partly)}: {seen.without_gradient} of {seen.parameters} parameters of {seen.kind} "
                f"get no gradient, and {names_text(elsewhere)}, which do, belong to no optimizer and do not train",
                "build the optimizer from model.parameters() after the last change of the model's layers and device",
                place=seen.place,
                rank=rank,
                step=seen.step,
                parameters=seen.parameters,
                without_gradient=seen.without_gradient,
                with_gradient_elsewhere=elsewhere,
            )
        ]

    def looked_at(self) -> str:
        ranks = len(self._trains | set(self._idle))
        return f"which parameters get gradients, on {count_text(ranks, 'rank')}" if ranks else ""
