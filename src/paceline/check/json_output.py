"""One JSON document with all findings and all that was not looked at."""

from __future__ import annotations

import json

import msgspec

from paceline.check.check_files import CheckResult
from paceline.records.findings import SEVERITIES


def json_of(result: CheckResult, version: str) -> str:
    """The document.

    Args:
        result: of the check.
        version: of Paceline.
    """
    document = {
        "version": version,
        "findings": [msgspec.to_builtins(each) for each in result.findings],
        "counts": {each: sum(finding.severity == each for finding in result.findings) for each in SEVERITIES},
        "files": {
            "read": result.read,
            "distributed": len(result.distributed),
            "not_distributed": len(result.not_distributed),
            "skipped": len(result.without_torch),
            "unreadable": [{"path": path, "reason": reason} for path, reason in result.unreadable],
        },
    }
    return json.dumps(document, indent=2) + "\n"
