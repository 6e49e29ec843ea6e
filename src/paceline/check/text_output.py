"""Findings as lines of text, with a summary of what was looked at."""

from __future__ import annotations

from collections import Counter

from paceline.check.check_files import CheckResult
from paceline.records.findings import SEVERITIES
from paceline.records.schema import Finding

_COLORS = {"error": "31", "warning": "33", "info": "36"}
_SHOWN_UNREADABLE = 20


def text_of(result: CheckResult, *, color: bool = False) -> str:
    """Everything as text.

    Args:
        result: of the check.
        color: severities in color, for terminals.
    """
    lines = [line for finding in result.findings for line in _lines(finding, color)]
    for path, reason in result.unreadable[:_SHOWN_UNREADABLE]:
        lines.append(f"{path}: not read: {reason}")
    if (more := len(result.unreadable) - _SHOWN_UNREADABLE) > 0:
        lines.append(f"{more} more files were not read (--format json lists them)")
    return "\n".join([*lines, summary(result)]) + "\n"


def place(finding: Finding) -> str:
    """`train.py:41:5`, in a notebook `train.ipynb:cell 3:12`."""
    parts = [finding.path or ""]
    if (cell := finding.evidence.get("cell")) is not None:
        parts.append(f"cell {cell}")
    parts += [str(number) for number in (finding.line, finding.column) if number is not None]
    return ":".join(parts)


def summary(result: CheckResult) -> str:
    """One line: what was found, in how many files, and what was not looked at."""
    judged, total = len(result.distributed), result.files
    if judged:
        scope = f"{_files(judged)} of distributed training" if judged == total else f"{judged} of {_files(total)}"
        text = f"{_counts(result)} in {scope}"
    else:
        text = f"nothing was judged: none of {_files(total)} is a distributed script" if total else "no files"
    left_out = [
        f"{_is(len(result.without_torch))} without torch" if result.without_torch else "",
        f"{_is(len(result.not_distributed))} not distributed" if result.not_distributed else "",
        f"{len(result.unreadable)} could not be read" if result.unreadable else "",
    ]
    shown = ", ".join(each for each in left_out if each)
    return f"{text} ({shown})" if shown else text


def statistics(result: CheckResult) -> str:
    """Number of findings by code, most frequent first."""
    counts = Counter((each.code, each.name, each.severity) for each in result.findings)
    rows = sorted(counts.items(), key=lambda row: (-row[1], row[0]))
    lines = [f"{count:>6}  {code}  {severity:<7}  {name}" for (code, name, severity), count in rows]
    return "\n".join([*lines, summary(result)]) + "\n"


def _lines(finding: Finding, color: bool) -> list[str]:
    severity: str = finding.severity
    if color:
        severity = f"\033[{_COLORS.get(severity, '0')}m{severity}\033[0m"
    faults = f" ({', '.join(finding.faults)})" if finding.faults else ""
    head = f"{place(finding)}: {severity} {finding.code} {finding.name}{faults}: {finding.message}"
    return [head, f"  next: {finding.advice}"] if finding.advice else [head]


def _counts(result: CheckResult) -> str:
    counts = Counter[str](each.severity for each in result.findings)
    words = {"error": "error", "warning": "warning", "info": "note"}
    shown = [f"{counts[each]} {words[each]}{'s' if counts[each] != 1 else ''}" for each in SEVERITIES if counts[each]]
    return ", ".join(shown) or "no findings"


def _files(number: int) -> str:
    return f"{number:,} file" if number == 1 else f"{number:,} files"


def _is(number: int) -> str:
    return f"{number:,} {'is' if number == 1 else 'are'}"
