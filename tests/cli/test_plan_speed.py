"""`paceline plan speed` in this process, with a probe that is only pretended: flags, refusals and stops."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.main import call
from paceline.plan.collectives import Link, ring
from paceline.plan.network import Timed
from paceline.records.plan_results import SpeedResult, read_plan
from paceline.report.plan.sections import content
from tests.plan.runs import training

INNER = Link(1e-4, 1e9)
BETWEEN = ["--per-node", "2", "--outer-bandwidth", "0.1", "--outer-latency", "500"]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One and two workers at three batches, in the current directory; a probe there finds `INNER`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr("paceline.studies.probe.probe", pretended)
    names = []
    for workers in (1, 2):
        for micro in (8, 16, 32):
            names.append(f"{workers}-{micro}")
            times = [(0.01 + 0.001 * micro) * (1.2 if workers == 2 else 1) * (1 + 0.01 * (n % 5)) for n in range(40)]
            training(tmp_path / names[-1], workers=workers, micro=micro, times=times)
    return names


def pretended(workers: Any, *_: Any, **__: Any) -> list[Timed]:
    """All-reduces as a ring's formula has them."""
    sizes = [4096 * 8**power for power in range(5)]
    return [Timed(count, size, ring(count, size, INNER)) for count in workers for size in sizes]


def planned(arguments: list[str]) -> SpeedResult:
    """The result in P."""
    assert call(["plan", "speed", *arguments, "--run-dir", "P"]) == 0
    found = read_plan("P")
    assert isinstance(found, SpeedResult)
    return found


def test_what_lies_between_machines_goes_with_a_probe(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The probed link connects the two workers of a machine, the flags say what connects machines; the card says so."""
    found = planned([*runs, "--probe", "--probe-workers", "2", *BETWEEN, "--workers", "1,2,8"])

    network = found.network
    assert (network.source, network.per_node) == ("probe", 2)
    assert network.latency_s == pytest.approx(INNER.latency_s, rel=0.01)
    assert (network.outer_latency_s, network.outer_bandwidth_bytes_per_s) == (pytest.approx(500e-6), 0.1e9)
    steps = {row.workers: row.step_s.value for row in found.rows if row.scaling == "weak"}
    assert steps[8] > steps[2] + 14 * 500e-6 * found.coefficients["late"] * found.coefficients["slower"]
    said = capsys.readouterr().out
    assert any("bandwidth between machines" in line and "as given" in line for line in said.splitlines())


def test_a_large_batch_is_written_out(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A million samples are not 1e+06, neither on the card nor in a table of the page."""
    found = planned([*runs, "--bandwidth", "1", "--latency", "50", "--micro", "1048576", "--workers", "1,4"])

    said = capsys.readouterr().out
    cells = [cell for figure in content(found).figures for row in figure.table.rows for cell in row]
    assert "4,194,304" in said
    assert "4,294,967,296" in cells
    assert not any("e+0" in text for text in (said, *cells))


@pytest.mark.parametrize(("number", "code"), [((), 130), ((int(signal.SIGTERM),), 143), ((int(signal.SIGHUP),), 143)])
def test_a_stop_during_the_probe_has_the_exit_code_of_its_signal(
    number: tuple[int, ...], code: int, runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """130 after Ctrl-C, 143 after SIGTERM, and nothing is left."""

    def stopped(*_: Any, **__: Any) -> list[Timed]:
        raise KeyboardInterrupt(*number)

    monkeypatch.setattr("paceline.studies.probe.probe", stopped)

    assert call(["plan", "speed", *runs, "--probe", "--run-dir", "P"]) == code
    assert not Path("P").exists()


def test_a_probe_under_torchrun_is_refused(
    runs: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each rank would start one; with a given network nothing is started, so there it is no matter."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")

    assert call(["plan", "speed", *runs, "--probe", "--run-dir", "P"]) == 2
    assert "paceline plan speed --probe starts its own workers" in capsys.readouterr().err
    assert call(["plan", "speed", *runs, "--bandwidth", "1", "--latency", "50", "--run-dir", "P"]) == 0


@pytest.mark.parametrize("workers", ["many", "0"])
def test_the_probes_workers_are_refused_by_their_own_flag(
    workers: str, runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """--workers are those that are predicted."""
    assert call(["plan", "speed", *runs, "--probe", "--probe-workers", workers]) == 2

    said = capsys.readouterr().err
    assert said.startswith(f"error: --probe-workers {workers} ")
    assert "next: --probe-workers auto" in said
