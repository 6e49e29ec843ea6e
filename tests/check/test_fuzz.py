"""Mutations of the zoo's scripts do not make `paceline check` fail."""

from __future__ import annotations

import pytest

from tests.check.fuzz import failures, mutated


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_no_rule_fails_on_mutated_scripts(first: int):
    """Twenty mutations each; `python -m tests.check.fuzz` tries 2,000."""
    assert list(failures(range(first, first + 20), workers=1)) == []


def test_a_mutation_is_made_from_its_number():
    """One that fails can be made again."""
    assert mutated(7) == mutated(7)
    assert len({mutated(number)[1] for number in range(10)}) == 10
