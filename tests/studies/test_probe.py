"""The probe times all-reduces of every size with every number of workers, and a link can be fitted to it."""

from __future__ import annotations

import pytest

from paceline.plan.network import fit_link
from paceline.records.errors import PacelineError
from paceline.studies.probe import probe


def test_larger_sums_take_longer_and_a_link_fits(tmp_path, monkeypatch) -> None:
    """On two workers: three sizes, a thousandfold apart."""
    monkeypatch.chdir(tmp_path)
    told: list[tuple[int, int]] = []

    rows = probe([1, 2], {}, seconds=0.5, sizes=[4096, 1 << 20, 1 << 22], tell=lambda *done: told.append(done))

    assert [(row.ranks, row.size_bytes) for row in rows] == [(2, 4096), (2, 1 << 20), (2, 1 << 22)]
    assert rows[0].seconds < rows[2].seconds
    link = fit_link(rows, one_machine=True).link
    assert 0 < link.latency_s < 0.1
    assert 1e6 < link.bandwidth < 1e12
    assert told == [(0, 1), (1, 1)]
    assert list(tmp_path.iterdir()) == []


def test_one_worker_has_no_network() -> None:
    """It is said what to do."""
    with pytest.raises(PacelineError) as refused:
        probe([1], {})

    assert "--workers" in str(refused.value.hint)
