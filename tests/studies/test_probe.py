"""The probe times all-reduces of every size with every number of workers, and a link can be fitted to it."""

from __future__ import annotations

import signal

import pytest

from paceline.launch.local_job import Ended
from paceline.plan.network import fit_link
from paceline.records.errors import PacelineError
from paceline.studies.probe import probe


def test_every_size_is_timed_and_a_link_fits(tmp_path, monkeypatch) -> None:
    """On two workers: three sizes, a thousandfold apart."""
    monkeypatch.chdir(tmp_path)
    told: list[tuple[int, int]] = []

    rows = probe([1, 2], {}, seconds=0.5, sizes=[4096, 1 << 20, 1 << 22], tell=lambda *done: told.append(done))

    assert [(row.ranks, row.size_bytes) for row in rows] == [(2, 4096), (2, 1 << 20), (2, 1 << 22)]
    link = fit_link(rows).link
    assert 0 < link.latency_s < 0.1
    assert 1e6 < link.bandwidth < 1e12
    assert told == [(0, 1), (1, 1)]
    assert list(tmp_path.iterdir()) == []


def test_one_worker_has_no_network() -> None:
    """It is said what to do, with the flag of the probe."""
    with pytest.raises(PacelineError) as refused:
        probe([1], {})

    assert "--probe-workers 2" in refused.value.hint


@pytest.mark.parametrize(("number", "arguments"), [(signal.SIGINT, ()), (signal.SIGTERM, (15,)), (signal.SIGHUP, (1,))])
def test_a_probe_that_is_stopped_says_by_which_signal(number, arguments, monkeypatch) -> None:
    """Ctrl-C as Python does; another signal with its number, from which the exit code is known."""
    monkeypatch.setattr("paceline.launch.local_job.run_job", lambda job: Ended(number, None, None))

    with pytest.raises(KeyboardInterrupt) as stopped:
        probe([2], {})

    assert stopped.value.args == arguments
