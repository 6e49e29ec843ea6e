"""`paceline check` on the zoo: floors of what is found, and no alarm in correct scripts."""

from __future__ import annotations

import pytest

from tests.zoo.check_score import Score, counts, scores

FOUND, NAMED, TOLD_APART = 0.85, 0.85, 0.8
"""Shares that must be reached; raise them when rules are added."""


@pytest.fixture(scope="module")
def results() -> list[Score]:
    """Of all scripts."""
    return scores()


def test_enough_faults_are_found_and_named(results: list[Score]):
    """Of all faulty scripts, also those whose fault reading cannot show."""
    number = counts(results)

    assert number["found"] >= FOUND * number["faulty"]
    assert number["named"] >= NAMED * number["faulty"]


def test_faulty_scripts_are_told_apart_from_their_repaired_twins(results: list[Score]):
    """A finding names the fault, and none does so once it is repaired."""
    number = counts(results)

    assert number["told apart"] >= TOLD_APART * number["twins"]


def test_correct_scripts_have_neither_errors_nor_warnings(results: list[Score]):
    """Infos are tolerated."""
    alarms = {each.script.slug: [one.code for one in each.alarms] for each in results if not each.script.faulty}

    assert {slug: codes for slug, codes in alarms.items() if codes} == {}


def test_no_rule_fails_on_a_script_of_the_zoo(results: list[Score]):
    """DP000 would say so."""
    assert [each.script.slug for each in results for one in each.findings if one.code == "DP000"] == []
