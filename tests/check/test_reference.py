"""docs/reference/rules.md says what the rules say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paceline.check.catalog import RULES
from paceline.check.reference import FAULTS_NOT_READ, page
from paceline.check.rule import Rule
from paceline.check.rule_text import anchor, explanation

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "rules.md"
TEXT = page()


def test_the_committed_page_is_up_to_date():
    """`python -m paceline.check.reference > docs/reference/rules.md` makes it."""
    assert PAGE.read_text() == TEXT


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_each_rule_has_a_row_a_section_and_an_explanation(rule: type[Rule]):
    """The row links to the section; both name its faults."""
    assert f"| [{rule.code}](#{anchor(rule)}) | `{rule.name}` |" in TEXT
    assert f"\n### {rule.code} {rule.name}\n" in TEXT
    assert rule.faults
    assert f"Faults: {', '.join(rule.faults)}." in " ".join(TEXT.split())
    assert explanation(rule).startswith(f"{rule.code} {rule.name}: ")


def test_a_fault_is_either_looked_for_or_has_a_reason_why_not():
    """The last section lists no fault that a rule names."""
    named = {fault for rule in RULES for fault in rule.faults}

    assert all(re.fullmatch(r"F\d+", fault) for fault in FAULTS_NOT_READ)
    assert set(FAULTS_NOT_READ) & named == set()
    assert all(f"| {fault} | {reason} |" in TEXT for fault, reason in FAULTS_NOT_READ.items())
