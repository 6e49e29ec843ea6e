"""Findings on disk."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

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

        read, notes = read_findings(path)

    assert (read, notes) == ([finding for batch in batches for finding in batch], [])


def test_no_file_means_no_findings(tmp_path: Path) -> None:
    """A run that was never judged."""
    assert read_findings(tmp_path / "findings.jsonl") == ([], [])


def test_torn_and_damaged_lines_are_counted_and_hide_no_finding(tmp_path: Path) -> None:
    """As in event files; a severity of a later version is kept."""
    path = tmp_path / "findings.jsonl"
    append_findings(path, [ONE])
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])

    torn, torn_notes = read_findings(path)
    path.write_bytes(whole + b"{}\n" + whole.replace(b'"info"', b'"critical"'))
    damaged, damaged_notes = read_findings(path)

    assert torn == [ONE]
    assert [finding.severity for finding in damaged] == ["info", "critical"]
    assert "torn (20 bytes" in torn_notes[0]
    assert "1 damaged line(s)" in damaged_notes[0]
