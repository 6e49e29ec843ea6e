"""Experiments of lab 10."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

_DIGITS = ["train", "digits", "--epochs", "6", "--format", "json"]


def state_of_a_training() -> None:
    """What there is besides the weights, for a small network with Adam."""
    model = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.1), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 64)).sum().backward()
    optimizer.step()
    weights = sum(p.numel() for p in model.parameters())
    momenta = sum(t.numel() for state in optimizer.state.values() for t in state.values() if torch.is_tensor(t))
    print(f"weights        {weights:>7,} numbers")
    print(f"optimizer      {momenta:>7,} numbers (two for each weight, and a count for each tensor)")
    print(f"random state   {torch.get_rng_state().numel():>7,} bytes, on each process its own")
    print("position             epoch and step; the schedule's rate follows from it")


def digits_without_momenta() -> float:
    """To how many digits the weights agree after five steps with and without the optimizer's state."""

    def run(forget: bool) -> np.ndarray:
        torch.manual_seed(0)
        model = nn.Linear(20, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        for step in range(15):
            if forget and step == 10:
                optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
            batch = torch.randn(16, 20, generator=torch.Generator().manual_seed(step))
            optimizer.zero_grad()
            (model(batch) - batch[:, :1]).square().mean().backward()
            optimizer.step()
        return model.weight.detach().numpy().astype(float)

    whole, without = run(False), run(True)
    return float(-np.log10(np.linalg.norm(whole - without) / np.linalg.norm(whole)))


def kill_and_resume() -> None:
    """`paceline train digits` on two workers, killed in the middle and resumed; against a run that nobody disturbed."""
    with tempfile.TemporaryDirectory() as folder:
        undisturbed, killed = Path(folder) / "undisturbed", Path(folder) / "killed"
        _paceline([*_DIGITS, "--workers", "2", "--run-dir", str(undisturbed)])
        command = [*_DIGITS, "--workers", "2", "--checkpoint-every", "20", "--run-dir", str(killed)]
        process = subprocess.Popen(
            [sys.executable, "-m", "paceline", *command],
            env=_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        while process.poll() is None and not any((killed / "checkpoints").glob("*/manifest.json")):
            time.sleep(0.05)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        at = max(int(path.name.removeprefix("step-")) for path in (killed / "checkpoints").glob("step-*"))
        print(f"killed; the last complete checkpoint is of step {at}")
        _paceline([*_DIGITS, "--workers", "2", "--resume", "auto", "--run-dir", str(killed)])
        ends = [_last(run) / "model.safetensors" for run in (undisturbed, killed)]
        said = "bit for bit" if ends[0].read_bytes() == ends[1].read_bytes() else "NOT"
        print(f"resumed to {ends[1].parent.name}; its weights are {said} the undisturbed run's")


def memory(parameters: int = 1_000_000_000) -> None:
    """Bytes for each process of a model with Adam in mixed precision, for three ways of sharding."""
    print(f"GB of each process, {parameters:,} parameters")
    print(f"{'processes':>9}  {'DDP':>8}  {'optimizer sharded':>17}  {'all sharded':>11}")
    for world in (1, 8, 64):
        weights, gradients, optimizer = 2 * parameters, 2 * parameters, 12 * parameters
        ddp = weights + gradients + optimizer
        first = weights + gradients + optimizer / world
        print(f"{world:>9}  {ddp / 1e9:>8.1f}  {first / 1e9:>17.1f}  {ddp / world / 1e9:>11.2f}")


def _last(run: Path) -> Path:
    """The newest checkpoint."""
    return sorted((run / "checkpoints").glob("step-*"))[-1]


def _paceline(command: list[str]) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-m", "paceline", *command], env=_environment(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-1000:])
    found: dict[str, object] = json.loads(done.stdout)
    return found


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}
