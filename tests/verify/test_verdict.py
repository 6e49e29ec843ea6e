"""Findings of the audited run are part of a verdict."""

import pytest

from paceline.records.parity import ParityResult
from paceline.records.schema import Finding
from paceline.verify.verdict import with_audits


@pytest.mark.parametrize(("finished", "verdict"), [(False, "fail"), (True, "pass")])
def test_an_abort_at_the_exit_of_a_rank_is_no_fault_of_the_training(finished: bool, verdict: str) -> None:
    """gloo aborts some processes that have done their work."""
    finding = Finding(
        code="DP180",
        name="rank-failed",
        severity="error",
        message="rank 1 failed",
        advice="",
        faults=["F90"],
        evidence={"finished": finished},
    )
    result = ParityResult(verdict="pass", reason="", command=["train.py"], world=2, findings=[finding])

    assert with_audits(result, "the mathematics agrees, but").verdict == verdict
