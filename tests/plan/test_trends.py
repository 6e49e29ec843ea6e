"""Published trainings, and what is computed of them."""

from __future__ import annotations

import pytest

from paceline.plan.trends import PUBLISHED, trends


def test_strong_scaling_of_mlperf_is_as_computed_elsewhere() -> None:
    """Beside 8 devices: 63, 41, 38 and 16 %."""
    found = {one.devices: one.efficiency for one in trends().records if one.who == "MLPerf"}

    assert found[8] == 1
    assert [found[count] for count in (64, 512, 768, 3584)] == pytest.approx([0.6319, 0.4134, 0.3801, 0.1643], abs=5e-5)


def test_a_step_of_goyal_took_a_quarter_of_a_second() -> None:
    """90 epochs of 1,281,167 images at 8,192 in an hour are 14,075.3 steps of 255.8 ms."""
    goyal = next(one for one in trends().records if one.who == "Goyal et al.")

    assert goyal.iteration_ms == pytest.approx(3600e3 / (90 * 1_281_167 / 8192))
    assert goyal.iteration_ms == pytest.approx(255.8, abs=0.05)


def test_what_is_not_published_is_not_computed() -> None:
    """No step without batch and epochs, no efficiency outside a series, and every row has a source."""
    for one, record in zip(PUBLISHED, trends().records, strict=True):
        assert (record.iteration_ms is None) == (one.batch is None or one.epochs is None)
        assert (record.efficiency is None) == (not one.series)
        assert record.source
