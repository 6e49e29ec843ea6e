"""Findings on disk: findings.jsonl of a run directory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from paceline.records.lines import JsonLines
from paceline.records.schema import Finding
from paceline.records.writer import EventWriter

SEVERITIES = ("error", "warning", "info")
"""Most severe first; a later version may have others."""


def by_severity(finding: Finding) -> int:
    """A key for `sorted`: errors first, severities of a later version last."""
    return SEVERITIES.index(finding.severity) if finding.severity in SEVERITIES else len(SEVERITIES)


def append_findings(path: Path, findings: Iterable[Finding]) -> None:
    """Add findings to the file."""
    with EventWriter(path) as writer:
        for finding in findings:
            writer.write(finding)


def read_findings(path: Path) -> tuple[list[Finding], list[str]]:
    """Findings in the order in which they were written, and notes on what was passed over; no file holds none."""
    lines: JsonLines[Finding] = JsonLines(path, Finding)
    found = [finding for _, finding in lines.scan()] if path.exists() else []
    return found, lines.notes
