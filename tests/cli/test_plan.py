"""`paceline plan` from the command line, on written-down runs: what people see, what is left, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Paceline

from tests.plan.runs import training

NETWORK = ("--bandwidth", "1", "--latency", "50")
MODEL = ("--parameters", "70B", "--tokens", "1.4T")
DEVICE = ("--peak", "989", "--precision", "bf16", "--utilisation", "40%")


@pytest.fixture
def short_runs(tmp_path: Path) -> list[str]:
    """One and two workers at three batches: 10 ms and 1 ms a sample, a fifth more with two."""
    names = []
    for workers in (1, 2):
        for micro in (8, 16, 32):
            step = (0.01 + 0.001 * micro) * (1.2 if workers == 2 else 1)
            names.append(f"speed-{workers}-{micro}")
            training(tmp_path / names[-1], workers=workers, micro=micro, times=[step] * 40)
    return names


@pytest.fixture
def sweep(tmp_path: Path) -> list[str]:
    """Runs to an accuracy of 0.9 at four batches with two seeds: 100 steps and 25,600 samples at least."""
    names = []
    for batch in (32, 128, 512, 2048):
        for seed in (0, 1):
            steps = round((100 + 25_600 / batch) * (1.02 if seed else 0.98))
            evaluations = [(steps // 2, 0.8), (steps, 0.9), (2 * steps, 0.95)]
            names.append(f"sweep-{batch}-{seed}")
            training(
                tmp_path / names[-1], micro=batch, evaluations=evaluations, config={"seed": seed, "task": "digits"}
            )
    return names


def test_speed_says_what_other_numbers_of_workers_give(
    tmp_path: Path, short_runs: list[str], paceline: Paceline
) -> None:
    """A card with a row for each, the bottleneck, errors of what was held out; result, page and run.json are left."""
    done = paceline("plan", "speed", *short_runs, *NETWORK, "--workers", "1,4,64", "--run-dir", "P")

    assert done.returncode == 0, done.stderr
    for part in ("digits", "strong", "weak", "held-out error", "64", "P/report.html"):
        assert part in done.stdout
    assert {path.name for path in (tmp_path / "P").iterdir()} >= {"run.json", "result.json", "report.html"}
    info = json.loads((tmp_path / "P" / "run.json").read_text())
    assert (info["verb"], info["facts"]["kind"], info["config"]["workers"]) == ("plan", "speed", "1,4,64")


def test_batch_finds_the_critical_batch_of_a_sweep(tmp_path: Path, sweep: list[str], paceline: Paceline) -> None:
    """256, with the runs' scatter; and times once a plan of speed is named."""
    done = paceline("plan", "batch", *sweep, "--target", "accuracy=0.9", "--format", "json", "--run-dir", "B")

    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["critical"]["value"] == pytest.approx(256, rel=0.1)
    assert result["critical"]["low"] < 256 < result["critical"]["high"]
    assert result["recommendation"]["command"].startswith("paceline train digits --global-batch ")
    assert all(row["time_s"] is None for row in result["table"])


def test_batch_takes_times_from_a_plan_of_speed(
    tmp_path: Path, short_runs: list[str], sweep: list[str], paceline: Paceline
) -> None:
    """Each row then has a time, and the fastest that is efficient enough is recommended."""
    done = paceline("plan", "speed", *short_runs, *NETWORK, "--run-dir", "P", "--format", "json")
    assert done.returncode == 0, done.stderr

    flags = ["--target", "accuracy=0.9", "--speed", "P", "--format", "json", "--efficiency", "0.4"]
    done = paceline("plan", "batch", *sweep, *flags)

    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    good = [row for row in result["table"] if row["system"] * row["statistical"] >= 0.4]
    best = min(good, key=lambda row: row["time_s"]["value"])
    advised = result["recommendation"]
    assert (advised["batch"], advised["workers"]) == (best["batch"], best["workers"])


REFUSED = {
    "no network": (["speed", "a", "b"], "--probe"),
    "one batch": (["speed", "a", "--probe"], "another --global-batch"),
    "no runs": (["speed"], "no run was named"),
    "not a run": (["speed", "nothing"], "nothing"),
    "half a network": (["speed", "a", "b", "--bandwidth", "1"], "--latency"),
    "bad workers": (["speed", "a", "b", "--workers", "0"], "whole numbers"),
    "runs without a target": (["batch", "a", "b"], "--target"),
    "a task without one": (["batch", "digits"], "--target"),
    "two batches": (
        ["batch", "sweep-512-0", "sweep-2048-0", "sweep-2048-1", "--target", "accuracy=0.9"],
        "3 are needed",
    ),
    "one side of the knee": (["batch", "flat-0", "flat-1", "flat-2", "--target", "accuracy=0.9"], "above the knee"),
    "no noise": (["batch", "a"], "--accumulate 2"),
    "confirm of several": (["batch", "a", "b", "--target", "accuracy=0.9", "--confirm"], "one run"),
    "unknown task": (["batch", "digit", "--target", "accuracy=0.9"], "digits"),
    "nothing to pay for": (["cost", "--price", "3"], "--tokens"),
    "no number": (["cost", "--parameters", "70Q", "--tokens", "1T"], "70B"),
    "85 devices a device": (["cost", *MODEL, *DEVICE, "--efficiency", "85"], "0 < value <= 1"),
    "efficiency of nothing": (["cost", *MODEL, "--efficiency", "0.9"], "--peak"),
    "a peak alone": (["cost", "--parameters", "1e9", "--tokens", "1e9", "--peak", "100"], "--utilisation"),
}


def test_what_cannot_be_planned_is_one_message_and_leaves_nothing(
    tmp_path: Path, sweep: list[str], paceline: Paceline
) -> None:
    """Exit code 2, no traceback, no directory."""
    for name, workers in (("a", 1), ("b", 2)):
        training(tmp_path / name, workers=workers, micro=32 // workers, times=[0.1] * 40, evaluations=[(10, 0.5)])
    for number, steps in enumerate((103, 101, 100)):  # at batches of 1,024 and more
        evaluations = [(steps // 2, 0.8), (steps, 0.9)]
        training(tmp_path / f"flat-{number}", micro=1024 * 4**number, evaluations=evaluations)

    for name, (arguments, hint) in REFUSED.items():
        done = paceline("plan", *arguments)

        assert (name, done.returncode) == (name, 2), done.stderr
        assert done.stderr.startswith("error: "), name
        assert hint in done.stderr, (name, done.stderr)
        assert "Traceback" not in done.stderr, name
        assert not (tmp_path / "runs").exists(), name


def test_trends_and_costs_are_printed(tmp_path: Path, paceline: Paceline) -> None:
    """Published efficiencies, and 6,805.6 PF/s-days for 70 billion parameters on 1.4 trillion tokens."""
    done = paceline("plan", "trends", "--format", "json")
    cost = paceline("plan", "cost", "--parameters", "70e9", "--tokens", "1.4e12", "--format", "json")

    assert done.returncode == cost.returncode == 0, done.stderr + cost.stderr
    efficiencies = [record["efficiency"] for record in json.loads(done.stdout)["records"] if record["devices"] == 3584]
    assert efficiencies == [pytest.approx(0.1643, abs=5e-5)]
    assert json.loads(cost.stdout)["pfs_days"] == pytest.approx(6805.6, rel=1e-4)


def test_a_cost_says_what_it_assumes(paceline: Paceline) -> None:
    """806.4 hours are those of perfect scaling, and 948.7 at the given efficiency; the peak is never reached."""
    perfect = paceline("plan", "cost", *MODEL, *DEVICE, "--devices", "512")
    given = paceline("plan", "cost", *MODEL, *DEVICE, "--devices", "512", "--efficiency", "85%")
    document = paceline("plan", "cost", *MODEL, *DEVICE, "--devices", "512", "--format", "json")

    assert perfect.returncode == given.returncode == document.returncode == 0, perfect.stderr + given.stderr
    assert "806.4 hours on 512 devices at 100 % scaling (assumed)" in perfect.stdout
    assert "948.7 hours on 512 devices at 85 % scaling (given)" in given.stdout
    for said in (perfect.stdout, given.stdout):
        assert "40 % of its peak all the time, as given" in said
    assumed = json.loads(document.stdout)["assumptions"]
    assert any(text.startswith("100 % scaling") and "--efficiency" in text for text in assumed)
