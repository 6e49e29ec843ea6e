"""Written-down runs: a builder that writes a run directory from a list of events."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from paceline.checkpoint import manifest
from paceline.records.rundir import RunDir, write_info
from paceline.records.schema import (
    AnyEvent,
    Batch,
    Checkpoint,
    End,
    Evaluation,
    Measure,
    Note,
    RunInfo,
    Start,
    Step,
    TaskFacts,
    Topology,
)
from paceline.records.writer import EventWriter


class Runs:
    """Makes run directories below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @staticmethod
    def info(name: str = "digits", **changes: Any) -> RunInfo:
        """A run.json of two ranks with 64 samples a step; `changes` replace fields."""
        world = changes.pop("world", 2)
        base: dict[str, Any] = {
            "schema": 1,
            "verb": "train",
            "name": name,
            "command": ["paceline", "train", name, "--lr", "0.1"],
            "started_at": "2026-03-01T09:30:00Z",
            "versions": {"paceline": "0.1.0", "torch": "2.14.1", "python": "3.11.2"},
            "config": {"task": name, "lr": 0.1, "schedule": "cosine", "seed": 0, "optimizer": {"name": "sgd"}},
            "topology": Topology(
                world=world,
                nodes=1,
                backend="gloo",
                device="cpu",
                device_name="a CPU",
                threads_per_rank=1,
                hostname="bench-1",
                cores=2,
            ),
            "batch": Batch(per_rank=64 // world, accumulation=1, world=world, global_batch=64),
            "task": TaskFacts(
                name=name,
                parameters=9610,
                train_samples=640,
                eval_samples=1000,
                steps_per_epoch=10,
                total_steps=20,
                data_source="scikit-learn",
            ),
            "precision": "fp32",
        }
        return RunInfo(**(base | changes))

    def write(self, name: str, events: Sequence[AnyEvent], *, info: RunInfo | None = None, tail: bytes = b"") -> Path:
        """A run directory with these events; `tail` is appended raw."""
        run = RunDir(self.root / name)
        write_info(run, info or self.info(name))
        with EventWriter(run.events()) as writer:
            for event in events:
                writer.write(event)
                if isinstance(event, Checkpoint):
                    manifest.write(run.checkpoints, event.step, 1, "digits", {"model.safetensors": b"weights"})
        with run.events().open("ab") as file:
            file.write(tail)
        return run.path

    @staticmethod
    def start(session: int = 1, step: int = 0, elapsed_s: float = 0.0) -> Start:
        """A session begins."""
        return Start(session=session, time_unix_s=1.77e9, world=2, step=step, elapsed_s=elapsed_s)

    @staticmethod
    def step(step: int, elapsed_s: float, *, loss: float = 1.0, samples: int | None = None, **changes: Any) -> Step:
        """A step of 64 samples with 10, 20, 30 and 5 ms in its phases."""
        base: dict[str, Any] = {
            "step": step,
            "epoch": (step - 1) // 10,
            "samples": 64 * step if samples is None else samples,
            "count": 64,
            "loss": loss,
            "lr": 0.1,
            "elapsed_s": elapsed_s,
            "data_s": 0.010,
            "forward_s": 0.020,
            "backward_s": 0.030,
            "update_s": 0.005,
        }
        return Step(**(base | changes))

    @staticmethod
    def evaluation(step: int, elapsed_s: float, accuracy: float, *, count: int = 1000, took: float = 0.5) -> Evaluation:
        """An evaluation after `step` steps."""
        metrics = {"loss": Measure(value=1 - accuracy, count=count), "accuracy": Measure(value=accuracy, count=count)}
        return Evaluation(
            step=step, epoch=step / 10, samples=64 * step, elapsed_s=elapsed_s, duration_s=took, metrics=metrics
        )

    @staticmethod
    def checkpoint(step: int, elapsed_s: float, took: float = 0.25) -> Checkpoint:
        """A checkpoint after `step` steps."""
        path = f"checkpoints/step-{step:08d}"
        return Checkpoint(step=step, path=path, duration_s=took, size_bytes=123_456, elapsed_s=elapsed_s)

    def plain(self, name: str = "plain", *, pace: float = 1.0, info: RunInfo | None = None) -> Path:
        """20 steps of 0.1 s each, an evaluation after steps 10 and 20, a checkpoint at the end.

        By hand: 2.0 s of steps + 2 x 0.5 s + 0.25 s = 3.25 s; 640 samples/s; accuracies 0.85 and 0.912.
        """
        at = lambda seconds: round(seconds * pace, 9)  # noqa: E731 (a scale, used on every line below)
        events: list[AnyEvent] = [self.start()]
        events += [self.step(k, at(0.1 * k), loss=2 / k) for k in range(1, 11)]
        events.append(self.evaluation(10, at(1.5), 0.85, took=at(0.5)))
        events += [self.step(k, at(0.5 + 0.1 * k), loss=2 / k) for k in range(11, 21)]
        events.append(self.evaluation(20, at(3.0), 0.912, took=at(0.5)))
        events.append(self.checkpoint(20, at(3.25), at(0.25)))
        events.append(End(step=20, reason="finished", exit_code=0, elapsed_s=at(3.25)))
        return self.write(name, events, info=info)

    def realistic(self, name: str, *, world: int = 2, seed: int = 0, resumed: bool = False, **changes: Any) -> Path:
        """A made-up Fashion-MNIST run that looks like a real one: 5 epochs of 469 steps of 128 samples."""
        draw = random.Random(seed)
        pace = 0.052 / world**0.9
        lr = 0.1 * changes.pop("lr_scale", 1.0)
        events: list[AnyEvent] = [self.start()]
        elapsed, before = 0.0, 0
        for k in range(1, 2346):
            if resumed and k == 1408:
                events.append(self.checkpoint(1407, elapsed := elapsed + 0.06, 0.06))
                events += [self.step(k + j, elapsed + pace * j, samples=128 * (k + j)) for j in range(30)]
                events.append(self.start(session=2, step=1407, elapsed_s=elapsed))
            part = k / 2345
            loss = 2.3 * math.exp(-k / 60) + 0.62 * math.exp(-part * 2.2) + 0.12 + draw.gauss(0, 0.055) * (1 - part / 2)
            slow = 4.0 if draw.random() < 0.004 or k == 1 else 1.0
            took = pace * slow * draw.lognormvariate(0, 0.05) * (1.06 if 900 < k < 1200 else 1)
            elapsed += took
            warm = min(1.0, k / 100)
            rate = lr * warm * 0.5 * (1 + math.cos(math.pi * part))
            epoch, within = divmod(k - 1, 469)
            used = epoch * 60_000 + min(128 * (within + 1), 60_000)
            parts = {"data_s": 0.04, "forward_s": 0.31, "backward_s": 0.55, "update_s": 0.06}
            phases = {phase: took * share for phase, share in parts.items()}
            count, before = used - before, used
            events.append(
                self.step(k, elapsed, loss=max(loss, 0.05), samples=used, count=count, lr=rate, epoch=epoch, **phases)
            )
            if k % 469 == 0:
                accuracy = round(0.917 - 0.16 * math.exp(-k / 650) - 0.0001 * draw.randrange(40), 4)
                elapsed += 1.1 / world
                measured = {
                    "loss": Measure(value=0.23 + 0.45 * math.exp(-k / 700) + 0.002 * draw.random(), count=10_000),
                    "accuracy": Measure(value=accuracy, count=10_000),
                }
                events.append(
                    Evaluation(
                        step=k,
                        epoch=k / 469,
                        samples=used,
                        elapsed_s=elapsed,
                        duration_s=1.1 / world,
                        metrics=measured,
                    )
                )
        events.append(Note(message="bf16 was measured slower than fp32 here, so fp32 was used"))
        events.append(self.checkpoint(2345, elapsed := elapsed + 0.07, 0.07))
        events.append(End(step=2345, reason="finished", exit_code=0, elapsed_s=elapsed, target_step=2345))
        return self.write(name, events, info=self._fashion(name, world, lr, seed, **changes))

    def _fashion(self, name: str, world: int, lr: float, seed: int, **changes: Any) -> RunInfo:
        settings = ["--workers", str(world), "--lr", f"{lr:g}", "--target", "accuracy=0.90"]
        return self.info(
            changes.pop("title", name),
            world=world,
            command=["paceline", "train", "fashion-mnist", "--epochs", "5", "--global-batch", "128", *settings],
            config={
                "task": "fashion-mnist",
                "epochs": 5,
                "global_batch": 128,
                "lr": lr,
                "schedule": "cosine",
                "warmup": "100 steps",
                "optimizer": "sgd",
                "momentum": 0.9,
                "seed": seed,
                "target": "accuracy=0.90",
                "patience": 1,
            },
            batch=Batch(per_rank=128 // world, accumulation=1, world=world, global_batch=128),
            task=TaskFacts(
                name="fashion-mnist",
                parameters=412_298,
                train_samples=60_000,
                eval_samples=10_000,
                steps_per_epoch=469,
                total_steps=2345,
                data_source="/usr/share/datasets/fashion-mnist",
            ),
            **changes,
        )


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """A builder of run directories below a fresh directory."""
    return Runs(tmp_path)


def raw(**fields: Any) -> bytes:
    """A line of an event file, written as it stands here."""
    return msgspec.json.encode(fields) + b"\n"
