"""Findings on disk."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.records.findings import append_findings, read_again, read_and_observed, read_findings
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


def found(code: str, *faults: str, line: int | None = 3, **evidence: object) -> Finding:
    """A finding in `train.py`."""
    path = None if line is None else "train.py"
    return Finding(
        code=code, name="n", severity="error", message="m", advice="a", faults=list(faults), path=path, line=line,
        evidence={"source": "read" if code.startswith("DP0") else "run", **evidence},
    )  # fmt: skip


def test_a_fault_that_is_read_and_observed_is_one_finding_with_the_code_of_the_run() -> None:
    """Both lines are kept: that of the run as the finding's, that of the script as evidence."""
    joined = read_and_observed([found("DP001", "F01", "F02", line=9)], [found("DP122", "F02", "F01", line=4)])

    assert [(each.code, each.line, each.evidence) for each in joined] == [
        ("DP122", 4, {"source": "both", "read": [{"code": "DP001", "path": "train.py", "line": 9}]})
    ]


def test_the_script_gives_the_line_that_a_run_does_not_know() -> None:
    """Some audits compare ranks and know no line."""
    (joined,) = read_and_observed([found("DP051", "F56", line=9)], [found("DP114", "F56", line=None)])

    assert (joined.path, joined.line) == ("train.py", 9)


def test_faults_of_one_kind_on_one_line_are_one_finding() -> None:
    """A loader without its sampler (F03) is a loader that reads everything (F01)."""
    assert len(read_and_observed([found("DP001", "F01")], [found("DP121", "F03")])) == 1
    assert len(read_and_observed([found("DP001", "F01", line=8)], [found("DP121", "F03")])) == 2
    assert len(read_and_observed([found("DP001", "F01")], [found("DP102", "F37")])) == 2


def test_findings_that_nothing_confirms_stand_alone() -> None:
    """The run's come first."""
    joined = read_and_observed([found("DP051", "F56")], [found("DP121", "F01")])

    assert [(each.code, each.evidence["source"]) for each in joined] == [("DP121", "run"), ("DP051", "read")]


def test_a_run_that_is_judged_again_keeps_what_was_read() -> None:
    """The script may have changed since, so it is not read again."""
    before = read_and_observed([found("DP001", "F01")], [found("DP121", "F01")])

    (again,) = read_again(before, [found("DP121", "F01")])

    assert again == before[0]
