"""Written-down trainings for these tests: steps of a given time, and evaluations of a given value."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from paceline.records.rundir import RunDir, write_info
from paceline.records.schema import (
    SCHEMA,
    Batch,
    Evaluation,
    GradientNorms,
    Measure,
    RunInfo,
    Start,
    Step,
    TaskFacts,
    Topology,
)


def training(
    path: Path,
    *,
    workers: int = 1,
    micro: int = 32,
    accumulation: int = 1,
    times: Sequence[float] = (),
    evaluations: Sequence[tuple[int, float]] = (),
    noise: Sequence[tuple[int, float]] = (),
    **changes: Any,
) -> Path:
    """A run: `times` of its steps, (step, accuracy) of its evaluations, (step, noise scale) of its gradients; `changes`
    replace fields of run.json."""
    run = RunDir(path)
    batch = workers * micro * accumulation
    info = RunInfo(
        schema=SCHEMA,
        verb="train",
        name="digits",
        command=["paceline", "train", "digits"],
        started_at="2026-03-01T09:30:00+00:00",
        versions={},
        config={"optimizer": "sgd", "seed": 0, "lr": 0.1} | changes.pop("config", {}),
        topology=Topology(
            world=workers,
            nodes=changes.pop("nodes", 1),
            backend="gloo",
            device="cpu",
            device_name="a CPU",
            threads_per_rank=1,
            hostname="here",
        ),
        batch=Batch(per_rank=micro, accumulation=accumulation, world=workers, global_batch=batch),
        task=TaskFacts(
            name="digits", parameters=1000, train_samples=50_000, eval_samples=100, steps_per_epoch=10, total_steps=100
        ),
        precision="fp32",
        facts={"sync_bytes_per_step": 4_000_000, "lr": 0.1},
    )
    write_info(run, msgspec.structs.replace(info, **changes))
    events: list[Any] = [Start(session=1, time_unix_s=0.0, world=workers, step=0)]
    now = 0.0
    for number, time in enumerate(times, start=1):
        now += time
        events.append(step(number, number * batch, now, time))
    for number, value in evaluations:
        measured = {"accuracy": Measure(value=value, count=100.0), "loss": Measure(value=1 - value, count=100.0)}
        events.append(
            Evaluation(step=number, epoch=0.0, samples=number * batch, elapsed_s=now, duration_s=0.1, metrics=measured)
        )
    events += [norms(number, batch, value) for number, value in noise]
    write_events(run, events)
    return path


def norms(number: int, batch: int, noise: float) -> GradientNorms:
    """Of two groups in a step, exactly what a gradient of length 1 with that noise scale has in the mean."""
    square = 1 + noise / (batch / 2)
    return GradientNorms(
        step=number, batch=batch, samples=[batch // 2] * 2, squares=[square] * 2, reduced=1 + noise / batch
    )


def step(number: int, samples: int, now: float, time: float) -> Step:
    """One step that took `time`."""
    return Step(
        step=number,
        epoch=0,
        samples=samples,
        count=1.0,
        loss=1.0,
        lr=0.1,
        elapsed_s=now,
        data_s=0.1 * time,
        forward_s=0.3 * time,
        backward_s=0.5 * time,
        update_s=0.1 * time,
    )


def write_events(run: RunDir, events: Sequence[Any], rank: int = 0) -> None:
    """An event file."""
    path = run.events(rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
