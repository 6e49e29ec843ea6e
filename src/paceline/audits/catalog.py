"""All audits of observed runs, and the judge that feeds them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from paceline.audits.audit import Audit
from paceline.audits.dp131_learning_rate_differs import LearningRateDiffers
from paceline.records.event import Event
from paceline.records.reader import EventStream
from paceline.records.schema import Finding

AUDITS: tuple[type[Audit], ...] = (LearningRateDiffers,)
"""In the order of their codes."""
_SEVERITIES = ("error", "warning", "info")


class RunJudge:
    """Feeds the events of all ranks to all audits.

    Attributes:
        audits: one of each kind.
        failed: why an audit was given up, by its code.
    """

    def __init__(self, audits: Iterable[type[Audit]] = AUDITS) -> None:
        self.audits = [kind() for kind in audits]
        self.failed: dict[str, str] = {}

    def feed(self, rank: int, event: Event) -> None:
        """Take one event of a rank."""
        for audit in self.audits:
            if audit.code in self.failed:
                continue
            try:
                audit.take(rank, event)
            except Exception as error:  # noqa: BLE001  a judge that fails must not end the run or the other judges
                self.failed[audit.code] = f"{type(error).__name__}: {error}"

    def findings(self) -> list[Finding]:
        """What is wrong so far: errors first, then by code.

        That ranks diverge (DP101) is left out where another finding says why.
        """
        found, explained = [], False
        for audit in self.audits:
            if audit.code in self.failed:
                continue
            each = audit.findings()
            explained |= audit.explains_divergence and any(one.severity != "info" for one in each)
            found += each
        found = [one for one in found if not (explained and one.code == "DP101")]
        return sorted(found, key=lambda one: (_SEVERITIES.index(one.severity), one.code))


def judge_run(run: Path) -> RunJudge:
    """Judge a saved run: the events of each rank, one rank after the other."""
    judge = RunJudge()
    for path in sorted((run / "events").glob("rank-*.jsonl")):
        rank = int(path.stem.removeprefix("rank-"))
        for event in EventStream(path, superseded=True):
            judge.feed(rank, event)
    return judge
