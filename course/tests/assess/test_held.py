"""What a training held for two epochs running."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_course.assess.held import held, reached

ACCURACIES = st.lists(st.floats(0, 1), max_size=12)


@pytest.mark.parametrize(
    ("accuracies", "level"),
    [
        ([], 0.0),
        ([0.9], 0.0),
        ([0.5, 0.9, 0.6], 0.6),
        ([0.9, 0.2, 0.7, 0.8, 0.1], 0.7),
        ([0.3, 0.3], 0.3),
    ],
)
def test_a_level_counts_that_two_epochs_running_had(accuracies: list[float], level: float) -> None:
    """A single good epoch is luck."""
    assert held(accuracies) == level


@pytest.mark.parametrize(
    ("accuracies", "epoch"),
    [
        ([], None),
        ([0.9], None),
        ([0.8, 0.8], 1),
        ([0.9, 0.7, 0.8, 0.8, 0.9], 3),
        ([0.9, 0.7, 0.9, 0.7], None),
        ([0.1, 0.8, 0.79999], None),
    ],
)
def test_the_target_is_reached_with_the_second_of_two_epochs(accuracies: list[float], epoch: int | None) -> None:
    """Counted from 0, as the column epoch is."""
    assert reached(accuracies, 0.8) == epoch


def test_what_is_no_number_is_no_accuracy() -> None:
    """A training that diverged."""
    assert held([0.5, math.nan, 0.4, 0.3]) == 0.3
    assert held([math.inf, math.inf]) == 0.0
    assert reached([0.9, math.nan, 0.9], 0.8) is None


@given(ACCURACIES, st.floats(0.01, 1))
def test_a_target_is_reached_exactly_if_it_is_held(accuracies: list[float], target: float) -> None:
    """The two agree, and no earlier beginning of the curve would have reached it."""
    epoch = reached(accuracies, target)

    assert (epoch is not None) == (held(accuracies) >= target)
    if epoch is not None:
        assert held(accuracies[: epoch + 1]) >= target > held(accuracies[:epoch])


@given(ACCURACIES, st.floats(0, 1))
def test_another_epoch_never_lowers_the_level(accuracies: list[float], more: float) -> None:
    """The best is kept."""
    assert held([*accuracies, more]) >= held(accuracies)
