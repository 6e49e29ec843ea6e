"""Findings as workflow commands, which GitHub shows beside the lines of a pull request."""

from __future__ import annotations

from paceline.check.check_files import CheckResult
from paceline.check.text_output import summary
from paceline.records.schema import Finding

_LEVELS = {"error": "error", "warning": "warning"}


def github_of(result: CheckResult) -> str:
    """One command for each finding and each file that could not be read, then the summary."""
    lines = [_command(finding) for finding in result.findings]
    lines += [
        f"::notice file={_property(path)},title=not read::{_data(f'paceline could not read this file: {reason}')}"
        for path, reason in result.unreadable
    ]
    return "\n".join([*lines, summary(result)]) + "\n"


def _command(finding: Finding) -> str:
    properties = {"file": finding.path or ""}
    cell = finding.evidence.get("cell")
    if cell is None:  # lines of cells are not lines of the file
        properties |= {
            key: str(value) for key, value in (("line", finding.line), ("col", finding.column)) if value is not None
        }
    properties["title"] = f"{finding.code} {finding.name}"
    shown = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    where = f"cell {cell}, line {finding.line}: " if cell is not None else ""
    text = f"{where}{finding.message}\nnext: {finding.advice}"
    return f"::{_LEVELS.get(finding.severity, 'notice')} {shown}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
