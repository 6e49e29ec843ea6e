"""Pictures and experiments of lab 2: a small network, trained in processes of its own."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F

from paceline.parallel.placement import usable_cores
from paceline.pool.warm_ranks import run_ranks
from paceline.tasks.models.small_cnn import SmallCNN
from paceline_course.checking import load_module

DATA = load_module(Path(__file__).with_name("data.py"), "paceline_course_L2_data").chosen()
TARGET, RATE = DATA.target, 0.1
MOST_EPOCHS = 8
QUICK = bool(os.environ.get("PACELINE_QUICK"))


def examples() -> None:
    """What is trained on; one image of each class."""
    images, labels = DATA.part(held=True)
    _, axes = plt.subplots(1, len(DATA.classes), figsize=(10, 1.4), layout="constrained")
    for label, (axis, name) in enumerate(zip(axes, DATA.classes, strict=True)):
        index = int((labels == label).nonzero()[0])
        axis.imshow(images[index, 0], cmap="gray")
        axis.axis("off")
        axis.set_title(name, fontsize=9)
    plt.show()
    print(f"{DATA.name}; the target is {DATA.target:.0%} on {len(labels):,} held-out images")


def throughput(batches: Sequence[int]) -> dict[int, float]:
    """Samples a second of a training step on one thread, by batch; drawn."""
    rates = {batch: float(run_ranks(_rate, 1, batch)[0]) for batch in batches}
    _, axis = plt.subplots(figsize=(5.4, 3.4), layout="constrained")
    axis.semilogx(list(rates), list(rates.values()), "o-", base=2)
    axis.set(xlabel="batch", ylabel="samples a second", ylim=(0, None))
    axis.set_xticks(list(rates), [str(batch) for batch in rates])
    plt.show()
    return rates


def _rate(batch: int, seconds: float = 1.0) -> float:
    torch.manual_seed(0)
    model = SmallCNN()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    images, labels = (part[:batch] for part in DATA.part())
    steps, began = 0, 0.0
    while True:
        if steps == 3:
            began = time.monotonic()
        if steps > 3 and time.monotonic() - began > seconds * (0.3 if QUICK else 1.0):
            return (steps - 3) * batch / (time.monotonic() - began)
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        steps += 1


def real_sweep(
    sweep: Callable[..., None], reached: Callable[..., int | None], batches: Sequence[int], seeds: Sequence[int]
) -> list[dict[str, Any]]:
    """The learner's sweep over real trainings, as many at once as this machine has cores; its rows.

    The learner's `sweep` trains one pair after the other, so it is called once a core, each with own batches: the
    largest goes with the smallest, whose epochs are the slowest, so that all end at about the same time.
    """
    import json

    folder = Path("runs")
    folder.mkdir(exist_ok=True)
    seeds = seeds[:1] if QUICK else seeds
    lanes = max(1, min(usable_cores(), len(batches) // 2))
    name = f"lab2-{time.strftime('%Y%m%d-%H%M%S')}"

    def lane(number: int) -> Path:
        path = folder / f"{name}-{number}.jsonl"
        own = [batch for at, batch in enumerate(batches) if min(at, len(batches) - 1 - at) % lanes == number]
        sweep(lambda batch, seed: _measured(batch, seed, reached), own, list(seeds), path)
        return path

    with ThreadPoolExecutor(lanes) as pool:
        files = list(pool.map(lane, range(lanes)))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def _measured(batch: int, seed: int, reached: Callable[..., int | None]) -> dict[str, Any]:
    accuracies, steps_an_epoch, seconds = run_ranks(_train, 1, batch, seed, timeout_s=600)[0]
    epoch = reached(accuracies, TARGET)
    steps = None if epoch is None else epoch * steps_an_epoch
    said = f"{TARGET:.0%} after {epoch} epochs" if epoch else f"not at {TARGET:.0%} after {len(accuracies)} epochs"
    print(f"batch {batch:>5}, seed {seed}: {said}")
    return {
        "steps": steps,
        "samples": None if steps is None else steps * batch,
        "seconds": None if epoch is None else seconds * epoch / len(accuracies),
        "accuracy": accuracies[-1],
    }


def _train(batch: int, seed: int) -> tuple[list[float], int, float]:
    """Accuracies after each epoch, until the target was met twice or time is up; steps an epoch; training seconds."""
    images, labels = DATA.part()
    held, truth = DATA.part(held=True)
    torch.manual_seed(seed)
    model = SmallCNN()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    accuracies: list[float] = []
    seconds = 0.0
    for _ in range(4 if QUICK else MOST_EPOCHS):
        began = time.monotonic()
        model.train()
        for rows in torch.randperm(len(labels)).split(batch):
            optimizer.zero_grad()
            F.cross_entropy(model(images[rows]), labels[rows]).backward()
            optimizer.step()
        seconds += time.monotonic() - began
        model.eval()
        with torch.no_grad():
            accuracies.append(float((model(held).argmax(dim=1) == truth).float().mean()))
        if len(accuracies) > 1 and min(accuracies[-2:]) >= TARGET:
            break
    return accuracies, -(-len(labels) // batch), seconds


def samples_and_seconds(rows: Sequence[dict[str, Any]]) -> int:
    """Steps, samples and seconds to the target by batch, drawn; the batch that gets there soonest."""
    batches = sorted({row["batch"] for row in rows})
    _, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    for axis, name, unit in ((left, "steps", ""), (left, "samples", ""), (right, "seconds", " s")):
        del unit
        known = [(row["batch"], row[name]) for row in rows if row[name] is not None]
        axis.loglog([batch for batch, _ in known], [value for _, value in known], "o", base=2, label=name, alpha=0.7)
    failed = sorted({row["batch"] for row in rows if row["steps"] is None})
    for axis in (left, right):
        axis.set_xticks(batches, [str(batch) for batch in batches])
        axis.set_xlabel("batch" + (f" (not reached by all at {', '.join(map(str, failed))})" if failed else ""))
        axis.legend(frameon=False)
    left.set_ylabel(f"to {TARGET:.0%}")
    right.set_ylabel(f"seconds to {TARGET:.0%}")
    plt.show()
    medians = {
        batch: statistics.median(
            float("inf") if row["seconds"] is None else row["seconds"] for row in rows if row["batch"] == batch
        )
        for batch in batches
    }
    return min(medians, key=lambda batch: medians[batch])
