"""The time-to-accuracy benchmark: what it counts, and that it goes on where it stopped."""

import json
import math
import os
import subprocess
import sys

import pytest

import time_to_accuracy as tta
from datasets_here import synthetic_root
from harness import BENCH
from paceline.records.errors import PacelineError
from paceline.records.reader import EventStream
from paceline.records.schema import Checkpoint, Evaluation, Measure
from paceline.records.writer import EventWriter


def evaluation(step, elapsed_s, duration_s, accuracy):
    """An event of ours."""
    return Evaluation(
        step=step,
        epoch=step / 10,
        samples=step * 128,
        elapsed_s=elapsed_s,
        duration_s=duration_s,
        metrics={"accuracy": Measure(value=accuracy, count=10_000)},
    )


def test_our_training_time_leaves_out_evaluations_and_checkpoints(tmp_path):
    """Of a run's events, training is what is left of elapsed time after all evaluations and checkpoints so far."""
    path = tmp_path / "rank-00000.jsonl"
    with EventWriter(path) as writer:
        writer.write(evaluation(10, elapsed_s=12.0, duration_s=2.0, accuracy=0.85))
        writer.write(Checkpoint(step=10, path="x", duration_s=0.5, size_bytes=1, elapsed_s=12.5))
        writer.write(evaluation(20, elapsed_s=24.5, duration_s=2.0, accuracy=0.91))

    points = tta.points_of_events(EventStream(path))

    assert [(p.samples, p.train_s, p.total_s, p.accuracy) for p in points] == [
        (1280, 10.0, 12.0, 0.85),
        (2560, 20.0, 24.5, 0.91),
    ]


def test_the_tutorials_times_add_up_over_epochs():
    """Seconds of each epoch are summed; lines that are no JSON objects are left alone."""
    lines = [
        "warning: something",
        json.dumps({"samples": 100, "train_s": 3.0, "evaluation_s": 1.0, "accuracy": 0.8}),
        json.dumps({"samples": 200, "train_s": 4.0, "evaluation_s": 1.5, "accuracy": 0.93}),
    ]

    points = tta.points_of_lines("\n".join(lines))

    assert [(p.train_s, p.total_s) for p in points] == [(3.0, 4.0), (7.0, 9.5)]
    assert tta.first_at(points, 0.92) == points[1]
    assert tta.first_at(points, 0.94) is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [([3.0, None, 1.0, 2.0, None], 3.0), ([None, None, 1.0], math.inf), ([5.0, 1.0, 2.0], 2.0)],
)
def test_a_censored_run_counts_as_later_than_all_others(values, expected):
    """The median is known as long as most runs reached the target, and infinite otherwise."""
    assert tta.median_with_censored(values) == expected


def fake_runs(monkeypatch):
    """Replace both contestants; returns the list of cells that were really run."""
    done = []

    def fake(name):
        def run(settings, seed, root):
            done.append((name, seed))
            slow = 3.0 if name == "tutorial" else 1.0
            return [tta.Point(100, slow, slow + 1, 0.91), tta.Point(200, 2 * slow, 2 * slow + 2, 0.925)]

        return run

    monkeypatch.setattr(tta, "RUN", {name: fake(name) for name in tta.CONTESTANTS})
    return done


def test_a_second_call_runs_only_the_missing_cells(tmp_path, monkeypatch):
    """Finished cells are read, missing ones are measured, and the two contestants take turns."""
    done = fake_runs(monkeypatch)
    tta.measure(tmp_path, tta.Settings(), 2, tmp_path)
    assert done == [("paceline", 0), ("tutorial", 0), ("paceline", 1), ("tutorial", 1)]
    tta.cell_file(tmp_path, "tutorial", 0).unlink()
    done.clear()

    found = tta.measure(tmp_path, tta.Settings(), 2, tmp_path)

    assert done == [("tutorial", 0)]
    assert [len(cells) for cells in found.values()] == [2, 2]


def test_cells_of_other_settings_are_refused(tmp_path, monkeypatch):
    """A folder never mixes runs that cannot be compared."""
    fake_runs(monkeypatch)
    tta.measure(tmp_path, tta.Settings(epochs=8), 1, tmp_path)

    with pytest.raises(PacelineError, match="other settings"):
        tta.measure(tmp_path, tta.Settings(epochs=9), 1, tmp_path)


def test_the_summary_gives_medians_and_the_speedup(tmp_path, monkeypatch):
    """Rows hold medians for both targets, and the table says how many times as long the tutorial loop needs."""
    fake_runs(monkeypatch)
    found = tta.measure(tmp_path, tta.Settings(), 3, tmp_path)

    rows = tta.summarise(found, epochs=8)

    assert [(r["target"], r["contestant"], r["reached"], r["train_s"]["median"]) for r in rows] == [
        (0.90, "paceline", 3, 1.0),
        (0.90, "tutorial", 3, 3.0),
        (0.92, "paceline", 3, 2.0),
        (0.92, "tutorial", 3, 6.0),
    ]
    text = "\n".join(tta.table(rows))
    assert "0.92, training only: the tutorial loop needs 3.00 times as long" in text
    assert "| 0.90 | paceline train | 3 of 3 | 1.0 (1.0 to 1.0) |" in text


@pytest.mark.slow
def test_the_tutorial_run_counts_every_test_sample_on_two_ranks(tmp_path):
    """Under torchrun it prints a line an epoch with all test samples, odd in number, and stops at its last epoch."""
    root = synthetic_root(tmp_path, train=200, test=51)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
               str(BENCH / "tutorial_run.py"), "--data-dir", str(root), "--batch", "16", "--epochs", "2",
               "--lr", "0.05", "--seed", "0", "--target", "1.1"]  # fmt: skip

    done = subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=200, check=False
    )

    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["counted"] for line in lines] == [51, 51]
    assert [line["samples"] for line in lines] == [200, 400]
    assert len(tta.points_of_lines(done.stdout)) == 2
