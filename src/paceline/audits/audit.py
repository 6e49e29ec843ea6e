"""The base class of all audits of observed runs.

An audit reads what `RunState` has collected from the events of all ranks, live or from a saved run, and reports what is
wrong. It is fed the events as well, and keeps what only it needs. Its findings depend on the events alone: their order
within a rank is that of the program, their order between ranks means nothing. `findings` and `looked_at` may be called
at any time.

A module `dp1xx_<slug>.py` holds one audit. Its docstring has the headings of `HEADINGS`; docs/reference/audits.md is
generated from it.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar

from paceline.audits.replicas import Replicas
from paceline.audits.run_state import RunState
from paceline.records.event import Event, Severity
from paceline.records.place import Place
from paceline.records.schema import Finding

HEADINGS = ("What it finds", "Why it matters", "Repair", "Known problems", "References")
TOPICS = ("replicas", "gradients", "data", "schedule", "evaluation", "collectives", "files")


class Audit(abc.ABC):
    """One kind of fault, judged from events.

    Args:
        run: shared by all audits of a judge, which feeds it first.

    Attributes:
        code: permanent, DP1xx.
        name: a few words with hyphens.
        topic: one of `TOPICS`.
        faults: ids of the faults that it can name.
        needs: signals (names of probes) without which it sees nothing.
        explains_divergence: a finding of it says why ranks hold different weights.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    topic: ClassVar[str]
    faults: ClassVar[tuple[str, ...]]
    needs: ClassVar[tuple[str, ...]]
    explains_divergence: ClassVar[bool] = False

    def __init__(self, run: RunState) -> None:
        self.run = run

    @property
    def world(self) -> int:
        """Ranks of the job; 0 before the first event."""
        return self.run.world

    def feed(self, rank: int, event: Event) -> None:  # noqa: B027  many audits need no more than `run` has
        """Take an event that `run` has taken already; events that do not matter here are ignored."""

    @abc.abstractmethod
    def findings(self) -> list[Finding]:
        """The findings from the events so far; most audits report the first fault of their kind only."""

    @abc.abstractmethod
    def looked_at(self) -> str:
        """A short description of the data that were judged; empty if there were none."""

    def finding(
        self,
        severity: Severity,
        message: str,
        advice: str,
        *,
        faults: tuple[str, ...] | None = None,
        place: Place | None = None,
        rank: int | None = None,
        step: int | None = None,
        **evidence: Any,
    ) -> Finding:
        """A finding of this audit.

        Args:
            severity: `error` where the evidence leaves no other explanation, `warning` where it is probable.
            message: what happens, with rank and step, and what it does to the result.
            advice: the shortest correct repair.
            faults: one or two ids out of `Audit.faults`; all of them by default.
            place: the line of the script.
            rank: the first rank concerned.
            step: the first step concerned.
            evidence: numbers and names that the message rests on.
        """
        return Finding(
            code=self.code,
            name=self.name,
            severity=severity,
            message=message,
            advice=advice,
            faults=list(self.faults if faults is None else faults),
            path=place.path if place else None,
            line=place.line if place else None,
            rank=rank,
            step=step,
            evidence={"source": "run", **evidence},
        )


class ReplicaAudit(Audit):
    """An audit of differences between the parameters of ranks."""

    explains_divergence = True

    @property
    def replicas(self) -> Replicas:
        """The parameters of all ranks."""
        return self.run.replicas

    def looked_at(self) -> str:
        """At how many instants the ranks were compared."""
        instants = len(self.replicas.compared)
        return f"parameters and gradients of {self.world} ranks at {instants} instants" if instants else ""
