"""Targets such as accuracy=0.90."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.records.errors import PacelineError
from paceline.records.target import Target, less_is_better, parse_target


@given(value=st.floats(allow_nan=False, allow_infinity=False), patience=st.integers(1, 9))
def test_a_target_is_read_as_it_is_written(value: float, patience: int) -> None:
    """METRIC=VALUE, with spaces around the name or not."""
    target = parse_target(f" top1 ={value!r}", patience)

    assert target == Target(metric="top1", value=value, patience=patience)


@pytest.mark.parametrize("text", ["", "accuracy", "accuracy=", "=0.9", "accuracy=high", "accuracy=nan", "loss=inf"])
def test_what_is_no_target_is_refused_with_an_example(text: str) -> None:
    """The message repeats what was typed."""
    with pytest.raises(PacelineError) as caught:
        parse_target(text)

    assert caught.value.what.startswith(f"--target {text} ")
    assert "accuracy=0.90" in caught.value.hint


@pytest.mark.parametrize(
    ("metric", "down"),
    [("loss", True), ("val_loss", True), ("top-5-error", True), ("accuracy", False), ("f1", False), ("glosses", False)],
)
def test_losses_and_errors_count_down(metric: str, down: bool) -> None:
    """By whole words of the name; a target is reached from the better side, and exactly on it."""
    target = Target(metric=metric, value=0.5)

    assert less_is_better(metric) is down
    assert target.reached(0.5)
    assert target.reached(0.4) is down
    assert target.reached(0.6) is not down
    assert not target.reached(math.nan)
