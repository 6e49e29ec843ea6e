"""Gradients of a wrapped model's parameters come from `torch.autograd.grad`, which DDP does not reduce.

What it finds:
    Calls of `torch.autograd.grad` with respect to parameters of a wrapped model, in a run whose ranks then hold
    different parameters.

Why it matters:
    DDP reduces gradients while `backward()` accumulates them into `.grad`. `autograd.grad` returns them instead, so
    each rank updates the model with the gradients of its own batch.

Repair:
    Call `loss.backward()`, or average the returned gradients over ranks before they are used.

Known problems:
    Gradients that the script reduces by hand, and gradient penalties on inputs, keep the ranks equal and are left
    alone.

References:
    F44. https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

from paceline.audits.across_ranks import Earliest
from paceline.audits.audit import ReplicaAudit
from paceline.audits.replicas import effect, evidence, of_wrapped
from paceline.audits.run_state import RunState
from paceline.records.event import Event
from paceline.records.observed_rank import GradientTaken
from paceline.records.schema import Finding


class GradientOfParameters(ReplicaAudit):
    """Connects such calls with the ranks' parameters."""

    code, name, topic = "DP107", "gradient-of-parameters", "gradients"
    faults = ("F44",)
    needs = ("backward", "fingerprints")

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._first: Earliest[GradientTaken] = Earliest()

    def feed(self, rank: int, event: Event) -> None:
        if isinstance(event, GradientTaken):
            self._first.add(event.step, rank, event)

    def findings(self) -> list[Finding]:
        taken = self._first.value
        difference = self.replicas.since(taken.step, of_wrapped) if taken is not None else None
        if taken is None or difference is None:
            return []
        return [
            self.finding(
                "error",
                f"torch.autograd.grad takes gradients of {taken.parameters} parameters, which DDP does not reduce; "
                f"{effect(difference)}",
                "call loss.backward(), or average these gradients over ranks before they are used",
                place=taken.place,
                rank=difference.ranks[0],
                step=difference.step,
                parameters=taken.parameters,
                **evidence(difference),
            )
        ]
