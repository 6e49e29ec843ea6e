"""All ranks look closely at the same steps, ever more rarely."""

from __future__ import annotations

import math

import pytest

from paceline.observe.schedule import has_digests, is_recorded, next_recorded

STEPS = range(1, 200_001)


def test_the_first_fifty_steps_are_recorded() -> None:
    """Faults show early."""
    assert all(is_recorded(step) for step in range(1, 51))


@pytest.mark.parametrize("doubling", range(11))
def test_each_doubling_adds_25_to_50_recorded_steps(doubling: int) -> None:
    """So the number of records grows with the logarithm of the steps."""
    steps = range(50 * 2**doubling + 1, 100 * 2**doubling + 1)

    assert 25 <= sum(is_recorded(step) for step in steps) <= 50


def test_state_is_digested_at_fibonacci_numbers() -> None:
    """A number n is one exactly if 5 n² + 4 or 5 n² - 4 is a square."""
    expected = [
        step for step in STEPS if any(math.isqrt(5 * step**2 + sign) ** 2 == 5 * step**2 + sign for sign in (4, -4))
    ]

    assert [step for step in STEPS if has_digests(step)] == expected
    assert not has_digests(0)


def test_the_choice_depends_on_the_step_alone() -> None:
    """A rank that began later or was restarted chooses the same ones: no state, whatever was asked before."""
    forwards = [(is_recorded(step), has_digests(step)) for step in range(1000)]

    assert [(is_recorded(step), has_digests(step)) for step in reversed(range(1000))] == forwards[::-1]


def test_the_next_recorded_step_is_the_first_one_after() -> None:
    """From every step on, recorded or not; digests are taken at recorded steps only."""
    expected = None
    for step in reversed(STEPS):
        if expected is not None:
            assert next_recorded(step) == expected
        if is_recorded(step):
            expected = step
        assert is_recorded(step) or not has_digests(step)
    assert next_recorded(0) == 1
