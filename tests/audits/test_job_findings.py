"""A failed attempt is a finding; one that succeeded is none."""

from __future__ import annotations

from paceline.audits.job_findings import job_findings
from paceline.records.launched import Attempt, Cause
from paceline.records.place import Place

ROWS = [
    ("raised", "ValueError: boom"),
    ("at", "train.py:7, in step"),
    ("others", "rank 0 was stopped"),
    ("next", "read"),
]


def attempt(number: int, cause: Cause | None, world: int = 2) -> Attempt:
    """As a launcher writes it."""
    outcome = "succeeded" if cause is None else "failed"
    return Attempt(
        attempt=number,
        started_unix_s=0.0,
        duration_s=1.0,
        world=world,
        outcome=outcome,
        ranks=[],
        logs=None,
        cause=cause,
    )


def cause(kind: str, *, sure: bool = True, place: Place | None = None) -> Cause:
    """Of rank 1."""
    return Cause(kind=kind, title="rank 1 failed first", rank=1, rows=ROWS, place=place, sure=sure)


def test_an_attempt_that_succeeded_is_no_finding() -> None:
    """Nor is one whose failure lies on another machine."""
    assert job_findings([attempt(1, None)]) == []


def test_each_failed_attempt_is_a_finding_with_rank_line_and_evidence() -> None:
    """What the card shows, as data: message, place, advice, and the rows themselves."""
    place = Place(path="train.py", line=7, function="step")

    first, second = job_findings(
        [attempt(1, cause("failed", place=place)), attempt(2, cause("failed")), attempt(3, None)]
    )

    assert (first.code, first.name, first.severity, first.rank) == ("DP180", "rank-failed", "error", 1)
    assert (first.path, first.line) == ("train.py", 7)
    assert (first.message, first.advice) == ("rank 1 failed first: ValueError: boom", "read")
    assert first.evidence == {"source": "run", "attempt": 1, "rows": ROWS, "finished": False}
    assert (second.path, second.line, second.evidence["attempt"]) == (None, None, 2)


def test_a_cause_that_is_only_probable_is_a_warning() -> None:
    """An error is certain."""
    probable, unknown = job_findings([attempt(1, cause("left", sure=False)), attempt(2, cause("unknown", sure=False))])

    assert (probable.code, probable.severity, probable.faults) == ("DP181", "warning", ["F79", "F81"])
    assert (unknown.code, unknown.severity, unknown.faults) == ("DP182", "warning", [])


def test_a_kind_of_a_later_version_is_a_failure_whose_cause_is_not_known() -> None:
    """The vocabulary is open."""
    (found,) = job_findings([attempt(1, cause("preempted"))])

    assert found.name == "job-failed"


def test_a_single_worker_harms_no_other_rank() -> None:
    """The faults concern the ranks that wait."""
    (found,) = job_findings([attempt(1, cause("failed"), world=1)])

    assert found.faults == []


def test_ranks_that_met_in_different_collectives_have_that_fault() -> None:
    """gloo aborts a rank that gets more bytes than it waits for."""
    words = Cause(
        kind="failed", title="rank 1 failed first", rank=1, rows=[("said", "Is there a collective mismatch?")]
    )

    (finding,) = job_findings([attempt(1, words)])

    assert (finding.code, finding.faults) == ("DP180", ["F130"])
