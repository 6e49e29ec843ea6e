"""Sections of the page of an observed run: findings, curves, samples."""

from __future__ import annotations

from typing import Any

import msgspec

from paceline.records.findings import by_severity
from paceline.records.schema import Finding
from paceline.report import words
from paceline.report.launch_view import NOT_OBSERVED, as_shown
from paceline.report.page.figures import Figure, Table
from paceline.report.page.observed_figures import ledger_figures, observed_figures
from paceline.report.run_record import Run
from paceline.report.summary import Summary

_LONGEST = 400


def observed_section(run: Run, summary: Summary, place: str) -> dict[str, Any] | None:
    """What the template needs; None for runs of other verbs.

    Args:
        run: as loaded.
        summary: of it.
        place: that ids of its figures begin with.
    """
    if summary.launch is None:
        return None
    found = summary.launch.observation
    unseen = [(each.what, each.why) for each in found.not_observed] if found else []
    if absent := [what for what in summary.launch.not_observed if what in NOT_OBSERVED]:
        unseen.append((", ".join(absent), "not recorded"))
    return {
        "judged": found is not None,
        "recorded": run.job.recorded > 0,
        "counts": words.finding_counts(found.findings) if found else "",
        "findings": [finding_card(each) for each in sorted(found.findings, key=by_severity)] if found else [],
        "watched": [(topic, "; ".join(texts)) for topic, texts in found.watched.items() if texts] if found else [],
        "unseen": unseen,
        "figures": observed_figures(run, place),
        "maps": ledger_figures(run, place, summary.launch.world),
    }


def figures_of(section: dict[str, Any] | None) -> list[Figure]:
    """All figures of a section."""
    return [*section["figures"], *section["maps"]] if section else []


def finding_card(finding: Finding) -> dict[str, Any]:
    """What the macro `finding` of a page shows of one."""
    facts = [
        ("line", words.place(finding.path, finding.line)),
        ("rank", "" if finding.rank is None else str(finding.rank)),
        ("step", words.integer(finding.step) if finding.step else ""),  # 0 is before the first
        ("faults", ", ".join(finding.faults)),
    ]
    rows = [[name.replace("_", " "), _text(value)] for name, value in finding.evidence.items()]
    return {
        "severity": finding.severity,
        "code": finding.code,
        "name": finding.name,
        "message": as_shown(finding.message),
        "advice": as_shown(finding.advice),
        "facts": [(label, text) for label, text in facts if text],
        "evidence": Table(f"Evidence of {finding.code}", ["What", "Value"], rows) if rows else None,
    }


def _text(value: Any) -> str:
    """A value of the evidence; long ones are cut."""
    if isinstance(value, str | int | float | None):
        text = "none" if value is None else value if isinstance(value, str) else words.plain(value)
    else:
        text = msgspec.json.encode(value).decode()
    text = as_shown(text.replace("\n", " "))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
