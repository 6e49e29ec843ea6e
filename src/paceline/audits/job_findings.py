"""Findings about a job that failed, from the attempts that its launcher recorded. Codes are permanent.

DP180  rank-failed       a rank failed by itself; the others lost it or were stopped
DP181  rank-left-early   a rank ended with code 0 while the others waited for it
DP182  job-failed        the job failed, and the first cause is not known
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from paceline.audits.failure_faults import MISMATCH, NamedFault, name_fault
from paceline.audits.last_positions import RankPosition
from paceline.records.launched import Attempt, Cause
from paceline.records.schema import Finding

_KINDS: dict[str, tuple[str, str, list[str]]] = {
    "failed": ("DP180", "rank-failed", ["F90"]),
    "left": ("DP181", "rank-left-early", ["F79", "F81"]),
}
"""Code, name and faults of each kind of cause."""
_UNKNOWN: tuple[str, str, list[str]] = ("DP182", "job-failed", [])


def job_findings(
    attempts: Iterable[Attempt], positions: Callable[[int], Mapping[int, RankPosition]] = lambda _: {}
) -> list[Finding]:
    """One finding for each attempt that failed on this machine, in order.

    A cause that the records prove is an error, a probable one a warning.

    Args:
        attempts: of the job.
        positions: positions(attempt) says how far each observed rank came; its faults are named from them.
    """
    causes = [(each, each.cause) for each in attempts if each.cause is not None]
    return [
        _finding(each, cause, name_fault(each, cause, positions(each.attempt)))
        for each, cause in causes
        if cause.kind != "hang"  # `hang_findings` says more
    ]


def explained(cause: Cause, attempt: Attempt, positions: Mapping[int, RankPosition]) -> Cause:
    """The cause with the fault that the positions of the ranks show, for the card."""
    named = name_fault(attempt, cause, positions)
    if named is None:
        return cause
    rows = [each for each in cause.rows if each[0] != "next"]
    return msgspec.structs.replace(cause, rows=[*rows, ("why", named.why), ("next", named.advice)])


def _finding(attempt: Attempt, cause: Cause, named: NamedFault | None) -> Finding:
    code, name, faults = _KINDS.get(cause.kind, _UNKNOWN)
    rows = dict(reversed(cause.rows))  # of rows with one label the first
    advice, why, place = rows.get("next", ""), "", cause.place
    if named is not None:
        faults, advice, why, place = list(named.faults), named.advice, named.why, named.place or cause.place
    elif any(MISMATCH in text for _, text in cause.rows):
        faults = ["F130"]
    return Finding(
        code=code,
        name=name,
        severity="error" if cause.sure else "warning",
        message="; ".join(part for part in (_message(cause, rows), why) if part),
        advice=advice,
        faults=faults if attempt.world > 1 else [],  # all concern the other ranks
        path=place.path if place is not None else None,
        line=place.line if place is not None else None,
        rank=cause.rank,
        evidence={"source": "run", "attempt": attempt.attempt, "rows": cause.rows, "finished": cause.finished},
    )


def _message(cause: Cause, rows: Mapping[str, str]) -> str:
    return ": ".join(part for part in (cause.title, rows.get("raised", "")) if part)
