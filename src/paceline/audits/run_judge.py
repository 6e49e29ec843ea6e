"""The judge of observed runs: feeds the events of all ranks to all audits, live or from a saved run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from paceline.audits.audit import TOPICS, Audit
from paceline.audits.catalog import AUDITS
from paceline.audits.last_positions import RankPosition
from paceline.audits.run_state import RunState
from paceline.audits.wording import ranks_text
from paceline.records.event import Event
from paceline.records.findings import by_severity
from paceline.records.ledger import read_ledger
from paceline.records.observed import Fingerprint, NotObserved, StepTiming
from paceline.records.observed_rank import (
    InputSeen,
    LedgerBatch,
    ModelWrapped,
    NonFinite,
    ObservedStep,
    OptimizerSeen,
    OutputCompared,
    RankStarted,
    ScriptEnded,
)
from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir
from paceline.records.schema import Finding

_OF_STEPS = ObservedStep | Fingerprint | InputSeen | OptimizerSeen | StepTiming | NonFinite
"""Events that carry the number of a step."""
_HELD = 2000
"""Events of a rank without a wrapped model that are held, at most."""


class RunJudge:
    """Feeds the events of all ranks to all audits.

    Attributes:
        audits: one of each kind.
        failed: why an audit was given up, by its code.
        ranks: that were observed.
        run: what the audits share.
        steps: optimizer steps of the rank that took most, as far as they were recorded.
    """

    def __init__(self, audits: Iterable[type[Audit]] = AUDITS) -> None:
        self.run = RunState()
        self.audits = [kind(self.run) for kind in audits]
        self._fed = [audit for audit in self.audits if type(audit).feed is not Audit.feed]
        self.failed: dict[str, str] = {}
        self.ranks: set[int] = set()
        self.steps = 0
        self._held: dict[int, list[Event] | None] = {}
        self._missing: dict[str, tuple[str, set[int]]] = {}

    @property
    def world(self) -> int:
        """Ranks of the job; 0 before the first event."""
        return self.run.world

    def feed(self, rank: int, event: Event) -> None:
        """Take one event of a rank.

        Some scripts train on one rank before they wrap the model, and steps are counted anew then. So events are held
        until a model is wrapped, and the steps before that are left out.
        """
        self._note(rank, event)
        held = self._held.setdefault(rank, [])
        if held is None or isinstance(event, RankStarted | LedgerBatch | OutputCompared):
            self._judge(rank, event)
            return
        held.append(event)
        if isinstance(event, ModelWrapped):
            self._release(rank, [each for each in held if not (event.step and isinstance(each, _OF_STEPS))])
        elif isinstance(event, ScriptEnded) or len(held) >= _HELD:
            self._release(rank, held)

    def finish(self) -> None:
        """No further event will come."""
        for rank, held in list(self._held.items()):
            self._release(rank, held or [])

    def _release(self, rank: int, events: list[Event]) -> None:
        self._held[rank] = None
        for each in events:
            self._judge(rank, each)

    def _judge(self, rank: int, event: Event) -> None:
        self.run.feed(rank, event)
        for audit in self._fed:
            if audit.code in self.failed:
                continue
            try:
                audit.feed(rank, event)
            except Exception as error:  # noqa: BLE001  a judge that fails must not end the run or the other judges
                self.failed[audit.code] = f"{type(error).__name__}: {error}"

    def _note(self, rank: int, event: Event) -> None:
        match event:
            case RankStarted():
                self.ranks.add(rank)
            case NotObserved():
                self._missing.setdefault(event.what, (event.why, set()))[1].add(rank)
            case ObservedStep() | ScriptEnded():
                self.steps = max(self.steps, event.step)

    def findings(self) -> list[Finding]:
        """Return the findings so far: errors first, then by code.

        That ranks diverge (DP101) is left out where another finding says why.
        """
        found, explained = [], False
        for audit in self.audits:
            if audit.code in self.failed:
                continue
            try:
                each = audit.findings()
            except Exception as error:  # noqa: BLE001
                self.failed[audit.code] = f"{type(error).__name__}: {error}"
                continue
            explained |= audit.explains_divergence and any(one.severity != "info" for one in each)
            found += each
        found = [one for one in found if not (explained and one.code == "DP101")]
        return sorted(found, key=lambda one: (by_severity(one), one.code))

    def positions(self, attempt: int) -> dict[int, RankPosition]:
        """How far each rank came in an attempt; empty if that is not known."""
        try:
            return self.run.positions.of(attempt)
        except RuntimeError:  # the tracker failed
            return {}

    def looked_at(self) -> dict[str, list[str]]:
        """List the judged data by topic, without repetitions; a topic without data has an empty list."""
        found: dict[str, list[str]] = {topic: [] for topic in TOPICS}
        for audit in self.audits:
            if audit.code not in self.failed and (text := audit.looked_at()) and text not in found[audit.topic]:
                found[audit.topic].append(text)
        return found

    def not_observed(self) -> list[NotObserved]:
        """List signals that were not observed, with reasons: of probes, then ranks, topics and audits without data."""
        found = []
        for what, (why, ranks) in self._missing.items():
            where = "" if ranks >= self.ranks else f" ({ranks_text(sorted(ranks))})"
            found.append(NotObserved(what=what + where, why=why))
        if absent := sorted(set(range(self.world)) - self.ranks):
            found.append(NotObserved(what=ranks_text(absent), why="no record of them was found"))
        if self.ranks:
            for topic, texts in self.looked_at().items():
                if not texts:
                    found.append(NotObserved(what=topic, why=_WHY[topic] if self.world > 1 else "the job has one rank"))
        found += [NotObserved(what=code, why=f"the audit failed: {why}") for code, why in self.failed.items()]
        return found


def judge_ledger(judge: RunJudge, run: Path) -> None:
    """Also judge which samples the ranks received."""
    for rank, batch in read_ledger(RunDir(run)):
        judge.feed(rank, batch)


def judge_run(run: Path) -> RunJudge:
    """Judge a saved run: the events of each rank, one rank after the other. Damaged lines are not observed."""
    judge = RunJudge()
    for rank, path in sorted(RunDir(run).rank_events().items()):
        stream = EventStream(path, superseded=True)
        for event in stream:
            judge.feed(rank, event)
        for note in stream.notes:
            judge.feed(rank, NotObserved(what="some events", why=note))
    judge_ledger(judge, run)
    judge_output(judge, run)
    judge.finish()
    return judge


def judge_output(judge: RunJudge, run: Path) -> None:
    """Also judge what launchers compared."""
    for path in sorted((run / "events").glob("launcher-*.jsonl")):
        for event in EventStream(path, superseded=True, only=OutputCompared):
            if isinstance(event, OutputCompared):
                judge.feed(0, event)


_WHY = {
    "replicas": "no state of all ranks was recorded at one step",
    "gradients": "no optimizer step was recorded on all ranks",
    "data": "no torch DataLoader was iterated over, and no input of a wrapped model was recorded",
    "schedule": "no optimizer step was recorded on all ranks",
    "evaluation": "no pass over a loader without backward passes was completed",
    "collectives": "no collective that the script calls itself was recorded on all ranks",
    "files": "no file was opened by the script",
}
"""Why a topic has no data."""
