"""The ranks hold different parameters, and no other audit says why.

What it finds:
    Parameters that are not bit for bit equal on all ranks before the first step, after a step or at the end. Buffers
    are not compared here.

Why it matters:
    Data-parallel training trains one model. Ranks that differ train several, each on its part of the data, and rank 0
    alone is saved.

Repair:
    Call the DDP wrapper for each forward pass that is trained on. Change parameters before wrapping, or on all ranks in
    the same way. Use `checkpoint(..., use_reentrant=False)` for activation checkpointing.

Known problems:
    Parameters that a script keeps different on purpose (experts, a classifier sharded by hand, an ensemble) are
    reported. Periodic averaging, FSDP and groups smaller than the job are recognized and left alone.

References:
    F54. https://github.com/open-mmlab/OpenPCDet/issues/1118
    F47. https://github.com/pytorch/pytorch/issues/109191
"""

from __future__ import annotations

from paceline.audits.audit import ReplicaAudit
from paceline.audits.divergence import Difference
from paceline.audits.replicas import effect, evidence
from paceline.audits.run_state import RunState
from paceline.records.event import Event, Severity
from paceline.records.observed_rank import ObservedStep
from paceline.records.place import Place
from paceline.records.schema import Finding

_NOT_ONE_MODEL = "the ranks no longer train the same model, and rank 0's alone is saved"


class ReplicasDiverge(ReplicaAudit):
    """Reports the first difference of parameters; `RunJudge` leaves it out where another audit explains it."""

    code, name, topic = "DP101", "replicas-diverge", "replicas"
    faults = ("F47", "F54")
    needs = ("fingerprints",)
    explains_divergence = False

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._places: dict[int, Place] = {}
        self._reentrant: Place | None = None

    def feed(self, rank: int, event: Event) -> None:
        if isinstance(event, ObservedStep):
            self._reentrant = self._reentrant or event.reentrant_place
            if event.step_place is not None:
                self._places.setdefault(rank, event.step_place)

    def findings(self) -> list[Finding]:
        """At most one, for the first instant at which parameters differ."""
        first = self.replicas.first()
        if first is None:
            return self._never_averaged()
        gradients = self.replicas.gradients()
        severity, text, advice = _judged(first, gradients, self.replicas.compared)
        share = f" ({len(first.names)} of {first.compared} {first.kind}s)"
        return [
            self.finding(
                severity,
                f"{text}{share}; {_NOT_ONE_MODEL}",
                advice,
                faults=self._faults(first, gradients),
                place=self._reentrant or next((place for _, place in sorted(self._places.items())), None),
                rank=first.ranks[0],
                step=first.step,
                **evidence(first),
            )
        ]

    def _faults(self, first: Difference, gradients: Difference | None) -> tuple[str, ...]:
        """The causes that remain when no other audit has found one."""
        if first.moment == "start" and self.replicas.models:
            return ("F54",)
        return ("F47",) if self._reentrant is not None and gradients is not None else ()

    def _never_averaged(self) -> list[Finding]:
        """Local SGD whose last steps were not averaged."""
        ends = [each for each in self.replicas.differences("parameter") if each.moment == "end"]
        if not (self.replicas.averaged and ends):
            return []
        return [
            self.finding(
                "info",
                f"{effect(ends[-1])}: the steps since the last averaging are rank 0's alone in what it saves",
                "average the parameters once more before the model is evaluated or saved",
                faults=(),
                rank=ends[-1].ranks[0],
                step=ends[-1].step,
                **evidence(ends[-1]),
            )
        ]


def _judged(
    first: Difference, gradients: Difference | None, compared: list[tuple[int, str]]
) -> tuple[Severity, str, str]:
    """Severity, text and advice."""
    states = [step for step, moment in compared if moment == "state"]
    if first.moment == "end":
        agreed = f", although they agreed after step {states[-1]}" if states else ""
        advice = "check what changes parameters on some ranks only, as weights averaged or loaded by rank 0"
        return "info" if states else "warning", f"{effect(first)}{agreed}", advice
    if first.moment == "start":
        return (
            "error",
            effect(first),
            "change parameters before DDP(model), which broadcasts rank 0's, or broadcast them",
        )
    if gradients is None:
        advice = "apply what changes parameters besides the gradients (loading, noise, optimizer settings) on all ranks"
        return "error", effect(first), advice
    text = effect(first)
    if first.kind == "parameter":
        text = f"{text}, because the gradients of step {gradients.step} differ"
    advice = "call the DDP wrapper in each forward pass that is trained on; use checkpoint(..., use_reentrant=False)"
    return "error", text, advice
