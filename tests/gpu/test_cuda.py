"""What only a CUDA device can show. Run with `make test-gpu`; nothing here was run where there is none."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from bench.interruptions import Setting, run_case, undisturbed
from conftest import Paceline

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CNN = str(Path(__file__).parents[1] / "files" / "cnn_task.py")


def test_every_device_gets_a_worker_with_nccl(tmp_path: Path, paceline: Paceline) -> None:
    """--workers auto is one worker a device; the ledger, read two steps late, still has every step."""
    result = paceline("train", CNN, "--steps", "30", "--run-dir", "r", timeout_s=300)

    assert result.returncode == 0, result.stderr
    info = json.loads((tmp_path / "r/run.json").read_text())
    assert info["topology"]["backend"] == "nccl"
    assert info["topology"]["world"] == torch.cuda.device_count()
    events = [json.loads(line) for line in (tmp_path / "r/events/rank-00000.jsonl").read_text().splitlines()]
    assert [e["step"] for e in events if e["type"] == "step"] == list(range(1, 31))


def test_more_workers_than_devices_are_refused(paceline: Paceline) -> None:
    """Two NCCL ranks cannot share a device: exit code 2, before anything starts."""
    result = paceline("train", "digits", "--workers", str(torch.cuda.device_count() + 1))

    assert result.returncode == 2
    assert "CUDA device" in result.stderr


@pytest.mark.parametrize("action", ["kill all", "SIGTERM"])
def test_an_interrupted_run_comes_back_bit_for_bit(action: str, tmp_path: Path) -> None:
    """Deterministic operations, bf16: the weights of an undisturbed run."""
    flags = (
        "--steps",
        "60",
        "--global-batch",
        "64",
        "--checkpoint-every",
        "9",
        "--deterministic",
        "--precision",
        "bf16",
    )
    setting = Setting(CNN, torch.cuda.device_count(), flags, 60)
    reference = undisturbed(setting, tmp_path)

    case = run_case(setting, action, tmp_path, reference, random.Random(1))

    assert case.left_over == 0
    assert case.identical, case


@pytest.mark.parametrize(
    "flags",
    [
        ("--batch-norm", "sync", "--average", "ema"),
        ("--batch-norm", "ghost", "--ghost-size", "8", "--average", "swa", "--swa-from", "0.3"),
        ("--compress", "bf16", "--optimizer", "lamb", "--clip-norm", "1"),
        ("--compress", "fp16", "--optimizer", "lars"),
        ("--optimizer", "muon", "--schedule", "wsd"),
        ("--optimizer", "novograd", "--schedule", "cosine", "--warmup", "5"),
    ],
)
def test_every_strategy_trains(flags: tuple[str, ...], tmp_path: Path, paceline: Paceline) -> None:
    """Each finishes with finite losses at every step."""
    result = paceline("train", CNN, "--steps", "20", "--global-batch", "64", "--run-dir", "r", *flags, timeout_s=300)

    assert result.returncode == 0, result.stderr
    events = [json.loads(line) for line in (tmp_path / "r/events/rank-00000.jsonl").read_text().splitlines()]
    losses = [e["loss"] for e in events if e["type"] == "step"]
    assert len(losses) == 20
    assert None not in losses
