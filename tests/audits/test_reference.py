"""docs/reference/audits.md says what the audits say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paceline.audits.catalog import AUDITS
from paceline.audits.dp101_replicas_diverge import ReplicasDiverge
from paceline.audits.dp123_same_order_each_epoch import SameOrderEachEpoch
from paceline.audits.dp155_repeated_output import RepeatedOutput
from paceline.audits.reference import page, severities

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "audits.md"
TEXT = page()


def test_the_committed_page_is_up_to_date():
    """`python -m paceline.audits.reference > docs/reference/audits.md` makes it."""
    assert PAGE.read_text() == TEXT


def test_each_audit_has_a_row_and_a_section():
    """The row links to the section."""
    for kind in AUDITS:
        anchor = f"{kind.code}-{kind.name}".lower()
        assert f"| [{kind.code}](#{anchor}) | `{kind.name}` |" in TEXT
        assert f"\n### {kind.code} {kind.name}\n" in TEXT
        assert severities(kind)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (ReplicasDiverge, ["error", "warning", "info"]),
        (SameOrderEachEpoch, ["error", "warning", "info"]),
        (RepeatedOutput, ["info"]),
    ],
)
def test_severities_are_those_that_the_source_gives(kind, expected):
    """Most severe first; words that are only compared with do not count."""
    assert severities(kind) == expected


def test_links_lead_to_pages_and_headings_that_are_there():
    """Within the page and to its neighbors."""
    for target, heading in re.findall(r"\]\(([a-z-]*(?:\.md)?)#([a-z0-9-]+)\)", TEXT):
        text = (PAGE.parent / target).read_text() if target else TEXT
        headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
        assert heading in {each.lower().replace(" ", "-") for each in headings}


def test_faults_that_a_run_cannot_show_are_not_among_those_that_audits_name():
    """The last section and the audits do not contradict each other."""
    unseen = set(re.findall(r"^\| (F\d+) \|", TEXT, flags=re.MULTILINE))

    assert {"F10", "F16", "F17", "F20", "F22", "F23", "F24", "F27", "F31", "F32", "F34", "F36", "F72"} <= unseen
    assert not unseen & {fault for kind in AUDITS for fault in kind.faults}
