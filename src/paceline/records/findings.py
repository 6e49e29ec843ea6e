"""Findings on disk: findings.jsonl of a run directory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from paceline.records.lines import JsonLines
from paceline.records.schema import Finding
from paceline.records.writer import EventWriter


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
