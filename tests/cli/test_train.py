"""`paceline train` from the command line: what people see, and what a run is worth when it is interrupted."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bench.interruptions import (
    ACTIONS,
    Setting,
    final_state,
    identical,
    left_over,
    processes_of,
    run_case,
    undisturbed,
    wait_for_step,
)
from conftest import Paceline

FILES = Path(__file__).parents[1] / "files"
CNN = ("--steps", "24", "--global-batch", "50", "--checkpoint-every", "5", "--eval-every", "9", "--precision", "bf16")


def test_a_run_says_what_it_does_and_what_came_of_it(tmp_path: Path, paceline: Paceline) -> None:
    """First line, a line an evaluation, a card with the count, a page; the run directory holds what it should."""
    result = paceline("train", "digits", "--epochs", "3", "--workers", "2", "--run-dir", "r", "--tensorboard")

    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert "32 per rank × 1 accumulation × 2 ranks = global batch 64" in lines[0]
    assert "fp32 (auto: no convolutions) · fused sgd · malloc keeps its memory · 1 thread a rank" in lines[1]
    assert sum(line.startswith("epoch") for line in lines) == 3
    assert "of 360" in result.stdout
    assert "r/report.html" in result.stdout
    run = tmp_path / "r"
    assert {p.name for p in run.iterdir()} >= {
        "run.json",
        "events",
        "checkpoints",
        "logs",
        "report.html",
        "tensorboard",
    }
    assert json.loads((run / "run.json").read_text())["batch"]["global_batch"] == 64
    assert list(run.glob("logs/*/attempt_0/1/stderr.log"))
    assert list(run.glob("tensorboard/*tfevents*"))


def test_json_is_one_object_on_stdout(paceline: Paceline) -> None:
    """A program can read the result: nothing else is on stdout."""
    result = paceline("train", "linear", "--epochs", "2", "--workers", "1", "--format", "json")

    assert result.returncode == 0, result.stderr
    summary = json.loads(result.stdout)
    assert "loss" in json.dumps(summary)


def test_a_target_ends_a_run_after_the_patience_asked_for(tmp_path: Path, paceline: Paceline) -> None:
    """Two evaluations in a row reach the target: the run ends there, and its last step is a checkpoint."""
    flags = ["--target", "accuracy=0.5", "--patience", "2", "--run-dir", "r", "--workers", "2"]

    result = paceline("train", "digits", *flags)

    assert result.returncode == 0, result.stderr
    events = [json.loads(line) for line in (tmp_path / "r/events/rank-00000.jsonl").read_text().splitlines()]
    accuracies = [e["metrics"]["accuracy"]["value"] for e in events if e["type"] == "evaluation"]
    assert [a >= 0.5 for a in accuracies[-2:]] == [True, True]
    assert not any(a >= 0.5 and b >= 0.5 for a, b in itertools.pairwise(accuracies[:-1]))
    assert events[-1]["reason"] == "target"
    assert (tmp_path / f"r/checkpoints/step-{events[-1]['target_step']:08d}/manifest.json").exists()


@pytest.mark.slow
def test_it_joins_a_job_that_torchrun_started_on_two_nodes(tmp_path: Path, paceline: Paceline) -> None:
    """Two agents with a rank each compute the bits that our own launcher's two ranks compute, in one run directory."""
    flags = ["train", "digits", "--steps", "40", "--run-dir"]
    own = paceline(*flags, "own", "--workers", "2")
    assert own.returncode == 0, own.stderr
    agent = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:29561"]
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        *agent,
        "-m",
        "paceline",
        *flags,
        "joined",
        "--tensorboard",
    ]

    agents = [subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [agent.communicate(timeout=120)[0] for agent in agents]

    assert [agent.returncode for agent in agents] == [0, 0]
    assert sum("global batch 64" in text for text in outputs) == 1
    assert identical(final_state(tmp_path / "own", 40), final_state(tmp_path / "joined", 40))
    assert len(list((tmp_path / "joined").glob("tensorboard/*tfevents*"))) == 1


@pytest.mark.slow
def test_a_second_ctrl_c_ends_everything_at_once(tmp_path: Path) -> None:
    """The first asks for a checkpoint, the second does not wait for it; no rank is left."""
    run = tmp_path / "r"
    command = [sys.executable, "-m", "paceline", "train", "digits", "--epochs", "4000", "--workers", "2"]
    process = subprocess.Popen([*command, "--run-dir", str(run)], stderr=subprocess.PIPE)
    wait_for_step(run, 50, process)
    for rank in (p for p in processes_of(run) if p.pid != process.pid):
        os.kill(rank.pid, signal.SIGSTOP)  # ranks that cannot answer: the first Ctrl-C would wait for them

    process.send_signal(signal.SIGINT)
    time.sleep(1.0)
    still_waiting = process.poll() is None
    process.send_signal(signal.SIGINT)
    code = process.wait(10)

    assert still_waiting
    assert code == 130
    assert left_over(run) == []


@pytest.mark.parametrize("kind", [pytest.param("told to stop", marks=pytest.mark.slow), "killed"])
def test_an_interrupted_run_ends_with_the_bits_of_an_undisturbed_one(
    kind: str, tmp_path: Path, three_ranks: tuple[Setting, Path]
) -> None:
    """bf16, augmented, three ranks, uneven batches: stopped at a random point, resumed, and no bit differs. Which kill
    it is changes from call to call; bench/interruptions.py goes through all of them."""
    setting, reference = three_ranks
    draw = random.Random(time.time_ns())
    action = "SIGTERM" if kind == "told to stop" else draw.choice([each for each in ACTIONS if each != "SIGTERM"])

    case = run_case(setting, action, tmp_path, reference, draw)

    assert case.left_over == 0
    assert case.identical, case
    assert case.exit_code == {"SIGTERM": 143, "kill a rank": 1, "kill the server": 1}.get(action, -9)


@pytest.mark.parametrize(
    "workers", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow)]
)
def test_forked_workers_train_the_bits_of_fresh_ones(workers: int, tmp_path: Path, paceline: Paceline) -> None:
    """What a fork copies decides nothing; run.json says how the workers were started."""
    flags = ["train", "digits", "--steps", "30", "--workers", str(workers), "--run-dir"]

    forked = paceline(*flags, "forked")
    fresh = paceline(*flags, "fresh", env={"PACELINE_START_METHOD": "spawn"})

    assert (forked.returncode, fresh.returncode) == (0, 0), fresh.stderr
    assert identical(final_state(tmp_path / "forked", 30), final_state(tmp_path / "fresh", 30))
    assert started_by(tmp_path / "forked") == "fork"
    assert started_by(tmp_path / "fresh") == "spawn: PACELINE_START_METHOD=spawn"


def started_by(run: Path) -> object:
    """As run.json has it."""
    return json.loads((run / "run.json").read_text())["facts"]["started_by"]


@pytest.fixture(scope="module")
def three_ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Setting, Path]:
    """A training of the CNN on three ranks, and its undisturbed run."""
    flags = (*CNN, "--augment", "crop,flip,erase")
    setting = Setting(str(FILES / "cnn_task.py"), 3, flags, 24)
    return setting, undisturbed(setting, tmp_path_factory.mktemp("undisturbed"))


@pytest.mark.slow
def test_random_datasets_and_dropout_resume_bit_for_bit(tmp_path: Path, paceline: Paceline) -> None:
    """A dataset with noise from three generators in two loader workers, and dropout: SIGTERM in mid-epoch, resumed."""
    flags = ["train", str(FILES / "dataset_task.py"), "--epochs", "4", "--global-batch", "32", "--workers", "2"]
    whole = paceline(*flags, "--run-dir", str(tmp_path / "whole"))
    assert whole.returncode == 0, whole.stderr
    run = tmp_path / "cut"
    process = subprocess.Popen([sys.executable, "-m", "paceline", *flags, "--run-dir", str(run)])
    wait_for_step(run, 10, process)

    process.send_signal(signal.SIGTERM)
    code = process.wait(60)
    resumed = paceline("train", "--resume", str(run))

    assert code == 143
    assert left_over(run) == []
    assert resumed.returncode == 0, resumed.stderr
    assert identical(final_state(run, 28), final_state(tmp_path / "whole", 28))
