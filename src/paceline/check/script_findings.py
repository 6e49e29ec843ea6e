"""Findings of `paceline check` in one script and the files that it imports, for `paceline run`."""

from __future__ import annotations

import os
from pathlib import Path

from paceline.check.check_files import joined
from paceline.check.file_check import FileCheck, FileChecker
from paceline.check.selection import FAILED, UNUSED, Selection, settings_for
from paceline.records.schema import Finding


def script_findings(script: Path) -> tuple[list[Finding], str]:
    """Findings in a script, and why it was not read.

    The settings of its pyproject.toml and comments that accept findings count. Findings in files that it imports are
    included, wherever they are.

    Args:
        script: the file that is started.

    Returns:
        The findings with absolute paths and an empty text, or no findings and the reason.

    Raises:
        PacelineError: the settings are invalid.
    """
    selection = Selection(settings_for([script]))
    path = os.path.abspath(script)  # noqa: PTH100  # `absolute` keeps `..`
    found = FileChecker(selection.rules).check(Path(path))
    if found.state == "unreadable":
        return [], found.reason
    others = {str(each.finding.path) for each in found.found} - {path}
    checks = {path: found} | {other: FileCheck("distributed") for other in others}
    findings = joined(checks, {each: each for each in checks}, selection).findings
    return [each for each in findings if each.code not in (FAILED[0], UNUSED[0])], ""
