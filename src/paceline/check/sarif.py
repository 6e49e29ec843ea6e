"""Findings as SARIF 2.1.0, the format that code scanning reads."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from paceline.check.catalog import RULES
from paceline.check.check_files import CheckResult
from paceline.check.rule import Rule
from paceline.check.rule_text import rule_sections, rule_summary
from paceline.check.selection import FAILED, UNUSED
from paceline.records.schema import Finding

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning"}
_OWN = {FAILED: "A rule of Paceline failed on this file.", UNUSED: "A comment accepts a finding that is not reported."}


def sarif_of(result: CheckResult, version: str) -> str:
    """The document.

    Args:
        result: of the check.
        version: of Paceline.
    """
    rules = [*(_own(code, name, text) for (code, name), text in _OWN.items()), *(_rule(each) for each in RULES)]
    rules.sort(key=lambda each: str(each["id"]))
    index = {str(each["id"]): number for number, each in enumerate(rules)}
    seen: Counter[str] = Counter()
    run = {
        "tool": {"driver": {"name": "paceline", "version": version, "semanticVersion": version, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [_unread(path, reason) for path, reason in result.unreadable],
            }
        ],
        "results": [_result(each, index, seen) for each in result.findings],
        "properties": {
            "filesRead": result.read,
            "filesDistributed": len(result.distributed),
            "filesWithoutTorch": len(result.without_torch),
        },
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(rule: type[Rule]) -> dict[str, Any]:
    sections = rule_sections(rule)
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": f"{rule_summary(rule)}."},
        "fullDescription": {"text": sections["What it does"]},
        "help": {
            "text": f"{sections['Why is this bad']}\n\n{sections['Repair']}",
            "markdown": "\n\n".join(f"**{heading}.** {text}" for heading, text in sections.items()),
        },
        "defaultConfiguration": {"level": _LEVELS.get(rule.severity, "note")},
        "properties": {"tags": [rule.topic, *rule.faults]},
    }


def _own(code: str, name: str, text: str) -> dict[str, Any]:
    return {
        "id": code,
        "name": "".join(word.capitalize() for word in name.split("-")),
        "shortDescription": {"text": text},
        "help": {"text": text},
        "defaultConfiguration": {"level": "note" if code == FAILED[0] else "warning"},
        "properties": {"tags": ["paceline"]},
    }


def _result(finding: Finding, index: dict[str, int], seen: Counter[str]) -> dict[str, Any]:
    cell = finding.evidence.get("cell")
    where = f"Cell {cell}, line {finding.line}: " if cell is not None else ""
    location: dict[str, Any] = {"artifactLocation": {"uri": _uri(finding.path or "")}}
    if cell is None and finding.line is not None:  # lines of cells are not lines of the file
        location["region"] = {"startLine": finding.line, "startColumn": finding.column or 1}
    # Without the line, so that it stays the same when lines above are added.
    digest = hashlib.sha256(f"{finding.code}\0{_uri(finding.path or '')}\0{finding.message}".encode()).hexdigest()[:16]
    seen[digest] += 1
    return {
        "ruleId": finding.code,
        "ruleIndex": index[finding.code],
        "level": _LEVELS.get(finding.severity, "note"),
        "message": {"text": f"{where}{finding.message}. Next: {finding.advice}."},
        "locations": [{"physicalLocation": location}],
        "partialFingerprints": {"paceline/v1": f"{digest}:{seen[digest]}"},
        "properties": {"faults": finding.faults},
    }


def _unread(path: str, reason: str) -> dict[str, Any]:
    return {
        "level": "warning",
        "message": {"text": f"{path} could not be read: {reason}"},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": _uri(path)}}}],
    }


def _uri(path: str) -> str:
    pure = PurePath(path)
    return pure.as_uri() if pure.is_absolute() else quote(pure.as_posix())
