"""The throughput benchmark, run small."""

import json
import statistics
import subprocess
import sys

import pytest

import throughput
from harness import BENCH
from ranks import ALLOCATOR, RankError, rank_environment


def call(script, *options):
    """Run a benchmark as users do."""
    command = [sys.executable, str(BENCH / script), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.serial
def test_a_quick_run_measures_everyone_and_writes_a_record(tmp_path):
    """With 2 workers: each contestant trains, its speed is images over seconds, and the record holds all blocks."""
    done = call("throughput.py", "--quick", "--workers", "2", "--records", str(tmp_path))

    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = tmp_path.iterdir()
    result = json.loads((folder / "result.json").read_text())
    (cell,) = result["cells"]
    assert result["finished"]
    assert result["environment"]["allocator"] == ALLOCATOR
    here = [name for name in throughput.TABLE if name not in result["left_out"]]
    assert list(cell["contestants"]) == here
    assert {"limit", "paceline", "hand", "tutorial-0"} <= set(here)
    for row in cell["contestants"].values():
        assert len(row["seconds"]) == 3
        assert row["images_per_s"] == pytest.approx([row["steps"] * 16 * 2 / s for s in row["seconds"]])
    assert [gate["against"] for gate in cell["gates"]] == [name for name in throughput.GATES if name in here]
    readme = (folder / "README.md").read_text()
    assert all(entry.title in readme for entry in map(throughput.TABLE.get, here))
    assert str(tmp_path) not in readme + json.dumps(result)


@pytest.mark.serial
def test_a_rank_that_fails_ends_the_run_with_its_message(tmp_path):
    """When a contestant cannot be built, the driver says which and why, and writes no record."""
    done = call("throughput.py", "--synthetic", "--workers", "1", "--batches", "70000", "--only", "hand",
                "--records", str(tmp_path))  # fmt: skip

    assert done.returncode == 1
    assert "hand: rank 0 failed" in done.stderr
    assert "fewer than one global batch" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def row(speeds, **check):
    """A contestant's measurements."""
    healthy = {"moved": 1.0, "finite": True, "synchronised": True, "rank_difference": 0.0}
    return {"images_per_s": speeds, "check": healthy | check}


@pytest.mark.parametrize(
    "bad", [{"moved": 0.0}, {"finite": False}, {"rank_difference": 1e-9}], ids=["idle", "not finite", "apart"]
)
def test_a_loop_that_does_not_train_in_step_is_not_compared(bad):
    """Weights that stay, blow up or differ between ranks make the run fail instead of counting as fast."""
    with pytest.raises(RankError):
        throughput._require_trained({"fast": row([1.0, 1.0, 1.0], **bad)})


def test_ranks_may_differ_where_nothing_is_synchronised():
    """The limit without synchronisation is allowed to drift apart."""
    throughput._require_trained({"limit-no-sync": row([1.0], synchronised=False, rank_difference=0.5)})


def test_a_gate_is_met_by_the_ratio_and_sure_by_its_interval():
    """Ratio and least decide "met"; an interval on both sides of the least is marked as within the noise."""
    limit = [100.0, 110.0, 90.0, 105.0, 95.0]
    found = {
        "paceline": row([98.0, 99.0, 97.0, 120.0, 80.0]),
        "limit": row(limit),
        "hand": row([value / 1.2 for value in limit]),
        "fabric": row([value * 3 for value in limit]),
    }

    gates = {gate["against"]: gate for gate in throughput.verdicts(found)}

    ratio = statistics.median(found["paceline"]["images_per_s"]) / statistics.median(limit)
    assert gates["limit"]["ratio"] == pytest.approx(ratio)
    assert gates["limit"]["met"]
    assert not gates["limit"]["sure"]
    assert not gates["fabric"]["met"]
    assert gates["fabric"]["sure"]
    assert "accelerate" not in gates


def test_ranks_get_torchruns_environment_and_only_our_allocator_settings(monkeypatch):
    """A user's own malloc settings do not leak into the comparison, and each rank knows its place."""
    monkeypatch.setenv("MALLOC_ARENA_MAX", "7")

    env = rank_environment(1, 2, 1234, {"MALLOC_MMAP_MAX_": "0"})

    assert "MALLOC_ARENA_MAX" not in env
    assert env["MALLOC_MMAP_MAX_"] == "0"
    assert (env["RANK"], env["WORLD_SIZE"], env["MASTER_PORT"], env["OMP_NUM_THREADS"]) == ("1", "2", "1234", "1")
