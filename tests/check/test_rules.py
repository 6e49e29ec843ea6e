"""Contracts that hold for every rule, from its own docstring and cases."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap

import pytest

from paceline.check.catalog import RULES
from paceline.check.edits import apply
from paceline.check.rule import HEADINGS, PRELUDE, TOPICS, Rule
from tests.check.rule_cases import marked_lines, reported_lines, violations

CASES = [
    pytest.param(rule, case, id=f"{rule.code}-{name}")
    for rule in RULES
    for name, case in {**rule.valid, **rule.invalid}.items()
]
FIXED = [
    pytest.param(rule, case, id=f"{rule.code}-{name}")
    for rule in RULES
    if rule.fixes
    for name, case in rule.invalid.items()
    if any(each.edits for each in violations(rule, case))
]


@pytest.mark.parametrize(("rule", "case"), CASES)
def test_a_rule_reports_exactly_the_marked_lines_of_its_cases(rule: type[Rule], case: str):
    """Lines without a mark are not reported."""
    assert reported_lines(rule, case) == marked_lines(case)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_rule_has_two_valid_and_two_invalid_cases(rule: type[Rule]):
    """A rule without cases cannot be added."""
    assert len(rule.valid) >= 2
    assert len(rule.invalid) >= 2
    assert all(marked_lines(case) for case in rule.invalid.values())
    assert not any(marked_lines(case) for case in rule.valid.values())


def test_codes_and_names_are_unique():
    """Codes and names select rules."""
    assert len({rule.code for rule in RULES}) == len(RULES)
    assert len({rule.name for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_rule_documents_itself(rule: type[Rule]):
    """Headings, fault ids and the file name agree with the class."""
    module = sys.modules[rule.__module__]
    document = inspect.getdoc(module) or ""
    found = re.findall(rf"^({'|'.join(HEADINGS)}):$", document, flags=re.MULTILINE)
    expected = [each for each in HEADINGS if rule.fixes or each != "Fix safety"]
    assert found == expected
    assert re.fullmatch(r"DP0\d\d", rule.code)
    assert rule.topic in TOPICS
    assert rule.faults
    assert all(re.fullmatch(r"F\d+", each) for each in rule.faults)
    assert all(each in document for each in rule.faults)
    slug = f"{rule.code.lower()}_{rule.name.replace('-', '_')}"
    assert module.__name__.rpartition(".")[2] == slug


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_rule_says_whether_it_fixes(rule: type[Rule]):
    """`fixes` is true if a case has a safe repair."""
    fixed = [name for name, case in rule.invalid.items() if any(each.edits for each in violations(rule, case))]

    assert bool(fixed) == rule.fixes


@pytest.mark.parametrize(("rule", "case"), FIXED)
def test_a_fix_parses_removes_the_finding_and_changes_nothing_when_repeated(rule: type[Rule], case: str):
    """A repair is complete the first time."""
    source = PRELUDE + textwrap.dedent(case)
    edits = [edit for each in violations(rule, case) for edit in each.edits]

    fixed = apply(source, edits)

    ast.parse(fixed)
    assert fixed != source
    left = violations(rule, fixed.removeprefix(PRELUDE))
    assert [each for each in left if each.edits] == []
