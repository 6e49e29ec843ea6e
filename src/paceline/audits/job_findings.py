"""Findings about a job that failed, from the attempts that its launcher recorded. Codes are permanent.

DP180  rank-failed       a rank failed by itself; the others lost it or were stopped
DP181  rank-left-early   a rank ended with code 0 while the others waited for it
DP182  job-failed        the job failed, and the first cause is not known
"""

from __future__ import annotations

from collections.abc import Iterable

from paceline.records.launched import Attempt, Cause
from paceline.records.schema import Finding

_KINDS: dict[str, tuple[str, str, list[str]]] = {
    "failed": ("DP180", "rank-failed", ["F90"]),
    "left": ("DP181", "rank-left-early", ["F79", "F81"]),
}
"""Code, name and faults of each kind of cause."""
_MISMATCH = "collective mismatch"
"""gloo's words for data of a size that it did not expect."""
_UNKNOWN: tuple[str, str, list[str]] = ("DP182", "job-failed", [])


def job_findings(attempts: Iterable[Attempt]) -> list[Finding]:
    """One finding for each attempt that failed on this machine, in order.

    A cause that the records prove is an error, a probable one a warning.
    """
    causes = [(each, each.cause) for each in attempts if each.cause is not None]
    return [_finding(each, cause) for each, cause in causes if cause.kind != "hang"]  # `hang_findings` says more


def _finding(attempt: Attempt, cause: Cause) -> Finding:
    code, name, faults = _KINDS.get(cause.kind, _UNKNOWN)
    if any(_MISMATCH in text for _, text in cause.rows):
        faults = ["F130"]
    rows = dict(reversed(cause.rows))  # of rows with one label the first
    return Finding(
        code=code,
        name=name,
        severity="error" if cause.sure else "warning",
        message=": ".join(part for part in (cause.title, rows.get("raised", "")) if part),
        advice=rows.get("next", ""),
        faults=faults if attempt.world > 1 else [],  # both concern the other ranks
        path=cause.place.path if cause.place is not None else None,
        line=cause.place.line if cause.place is not None else None,
        rank=cause.rank,
        evidence={"source": "run", "attempt": attempt.attempt, "rows": cause.rows, "finished": cause.finished},
    )
