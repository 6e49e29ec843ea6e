"""Findings on disk."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.records.errors import PacelineError
from paceline.records.findings import append_findings, read_findings
from paceline.records.schema import Finding

FINDINGS = st.builds(
    Finding,
    code=st.text(),
    name=st.text(),
    severity=st.sampled_from(["error", "warning", "info"]),
    message=st.text(),
    advice=st.text(),
    faults=st.lists(st.text(), max_size=2),
    line=st.none() | st.integers(0, 10**6),
    evidence=st.dictionaries(st.text(), st.integers(-5, 5) | st.text() | st.none(), max_size=2),
)
ONE = Finding(code="DP101", name="n", severity="info", message="m", advice="a")


@settings(max_examples=30)
@given(st.lists(st.lists(FINDINGS, max_size=3), max_size=3))
def test_findings_of_several_judges_come_back_in_order(batches: list[list[Finding]]) -> None:
    """Each judge appends; nothing of an earlier one is lost."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "findings.jsonl")
        for batch in batches:
            append_findings(path, batch)

        read = list(read_findings(path))

    assert read == [finding for batch in batches for finding in batch]


def test_no_file_means_no_findings(tmp_path: Path) -> None:
    """A run that was never judged."""
    assert list(read_findings(tmp_path / "findings.jsonl")) == []


def test_a_torn_last_line_is_dropped_and_damage_before_it_is_said(tmp_path: Path) -> None:
    """A judge that was killed is no damage; a broken line in the middle is, and its number is named."""
    path = tmp_path / "findings.jsonl"
    append_findings(path, [ONE])
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])

    torn = list(read_findings(path))
    path.write_bytes(whole + b"{}\n" + whole)

    assert torn == [ONE]
    with pytest.raises(PacelineError, match="is damaged in line 2"):
        list(read_findings(path))
