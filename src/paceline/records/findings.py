"""Findings on disk: findings.jsonl of a run directory."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from paceline.records.lines import JsonLines
from paceline.records.schema import Finding
from paceline.records.writer import EventWriter

_SECTIONS = (22, 37, 56, 64, 70, 78, 93, 105, 123, 128)
"""First fault ids of the sections of the catalog of faults, after the first section."""
SEVERITIES = ("error", "warning", "info")
"""Most severe first; a later version may have others."""


def by_severity(finding: Finding) -> int:
    """A key for `sorted`: errors first, severities of a later version last."""
    return SEVERITIES.index(finding.severity) if finding.severity in SEVERITIES else len(SEVERITIES)


def read_and_observed(read: Iterable[Finding], observed: Iterable[Finding]) -> list[Finding]:
    """Findings of `paceline check` and of a run as one list: a fault that was found both ways is one finding.

    Two findings are about one fault if they name it, or if they name faults of one kind on one line. The joint finding
    keeps the code of the run. `evidence.source` becomes `both`, and `evidence.read` lists what was read. The line
    is that of the run, or that of the script where the run does not know it.

    Args:
        read: of `paceline check`, codes DP0xx.
        observed: of audits and of the launcher.
    """
    found = list(observed)
    alone: list[Finding] = []
    for each in read:
        index = _same_fault(each, found)
        if index is None:
            alone.append(each)
        else:
            other = found[index]
            also = [*other.evidence.get("read", []), {"code": each.code, "path": each.path, "line": each.line}]
            place = {"path": each.path, "line": each.line, "column": each.column} if other.path is None else {}
            evidence = {**other.evidence, "source": "both", "read": also}
            found[index] = msgspec.structs.replace(other, evidence=evidence, **place)
    return [*found, *alone]


def _same_fault(read: Finding, observed: list[Finding]) -> int | None:
    """The index of the finding of a run that is about the same fault."""
    tests: list[Callable[[Finding], object]] = [
        lambda other: set(read.faults[:1]) & set(other.faults),
        lambda other: set(read.faults) & set(other.faults[:1]),
        lambda other: (other.path, other.line) == (read.path, read.line) and _kinds(read) & _kinds(other),
    ]
    return next((index for test in tests for index, other in enumerate(observed) if test(other)), None)


def _kinds(finding: Finding) -> set[int]:
    """Sections of the catalog of faults that the finding names: data, gradients, wrapping and so on."""
    numbers = [int(fault[1:]) for fault in finding.faults if fault[1:].isdecimal()]
    return {bisect.bisect(_SECTIONS, number) for number in numbers}


def read_again(before: Iterable[Finding], findings: Iterable[Finding]) -> list[Finding]:
    """Findings of a run that was judged again, with what had been read for those of the same code."""
    read = {each.code: each.evidence["read"] for each in before if each.evidence.get("read")}
    return [
        msgspec.structs.replace(each, evidence={**each.evidence, "source": "both", "read": read[each.code]})
        if each.code in read and "read" not in each.evidence
        else each
        for each in findings
    ]


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
