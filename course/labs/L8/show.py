"""Pictures and experiments of lab 8: the network of the task `shapes`, small batch against large."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F

from paceline.parallel.placement import usable_cores
from paceline.pool.warm_ranks import run_ranks
from paceline.tasks.models.small_cnn import SmallCNN
from paceline.tasks.shapes import draw
from paceline.train.norms.convert import with_batch_norm
from paceline.train.optim.build import build_optimizer
from paceline.train.optim.table import Settings

SMALL, LARGE, RATE, EPOCHS = 64, 512, 0.1, 6
SEEDS = (0, 1, 2)
QUICK = bool(os.environ.get("PACELINE_QUICK"))


@dataclass(frozen=True)
class Rung:
    """One strategy.

    Attributes:
        name: for people.
        batch: samples a step.
        rate: at its height.
        warmup: part of the steps.
        epochs: passes over the data.
        optimizer: a name of `paceline train --optimizer`.
        ghost: samples a batch norm sees at a time; 0 for all.
        smoothing: of labels.
    """

    name: str
    batch: int = LARGE
    rate: float = RATE
    warmup: float = 0.0
    epochs: int = EPOCHS
    optimizer: str = "sgd"
    ghost: int = 0
    smoothing: float = 0.0


K = LARGE / SMALL
ROOT = RATE * K**0.5
LADDER = (
    Rung("batch 64", batch=SMALL),
    Rung("batch 512, same rate"),
    Rung("square-root rule", rate=ROOT),
    Rung("linear rule", rate=RATE * K),
    Rung("linear, warm-up 20 %", rate=RATE * K, warmup=0.2),
    Rung("LARS", rate=10.0, optimizer="lars"),
    Rung("NovoGrad", rate=0.03, optimizer="novograd"),
    Rung("Muon", rate=0.1, optimizer="muon"),
    Rung("square root, ghost norm of 64", rate=ROOT, ghost=SMALL),
    Rung("square root, smoothed labels", rate=ROOT, smoothing=0.1),
    Rung("square root, 3 x the epochs", rate=ROOT, epochs=3 * EPOCHS),
)
"""Rates of the other optimizers: the best of four or five, a factor of about three apart, with one seed."""


def problem() -> None:
    """The same training with a small and a large batch."""
    rungs = LADDER[:2]
    found = _all(rungs, SEEDS[:1])
    for rung in rungs:
        steps = -(-8192 // rung.batch) * rung.epochs
        print(f"{rung.name:<24} {steps:>5} steps  accuracy {found[rung.name][0]:.3f}")


def schedules(rate_at: Callable[..., float]) -> None:
    """The learner's schedule, with and without warm-up."""
    _, axis = plt.subplots(figsize=(5.8, 3.2), layout="constrained")
    for warmup in (0, 10, 30):
        axis.plot([rate_at(step, 100, 1.0, warmup) for step in range(100)], label=f"warm-up {warmup}")
    axis.set(xlabel="step", ylabel="rate, in peaks")
    axis.legend(frameon=False)
    plt.show()


def trust_ratios(steps: int = 60) -> None:
    """How long each layer is against its gradient, over the first steps of SGD with a large batch."""
    images, labels = map(torch.from_numpy, draw(8192, seed=1))
    torch.manual_seed(0)
    model = SmallCNN()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    matrices = {name: weight for name, weight in model.named_parameters() if weight.dim() > 1}
    seen: dict[str, list[float]] = {name: [] for name in matrices}
    for _ in range(steps):
        rows = torch.randint(len(labels), (LARGE,))
        optimizer.zero_grad()
        F.cross_entropy(model(images[rows]), labels[rows]).backward()
        for name, weight in matrices.items():
            if weight.grad is not None:
                seen[name].append(float(weight.detach().norm() / weight.grad.norm()))
        optimizer.step()
    _, axis = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    for number, (name, ratios) in enumerate(seen.items()):
        label = "last layer" if name.startswith("head") else f"convolution {number + 1}"
        axis.semilogy(ratios, label=label, linewidth=1.2)
    axis.set(xlabel="step", ylabel="norm of weights / norm of gradient")
    axis.legend(frameon=False, fontsize=8)
    plt.show()


def ladder(compare: Callable[..., Any]) -> dict[str, float]:
    """Every rung with several seeds, drawn, compared with the learner's interval; points that two of them bring."""
    seeds = SEEDS[:2] if QUICK else SEEDS
    rungs = LADDER[:4] if QUICK else LADDER
    found = _all(rungs, seeds)
    _, axis = plt.subplots(figsize=(7.6, 4.2), layout="constrained")
    for position, rung in enumerate(rungs):
        values = np.array(found[rung.name]) * 100
        axis.barh(-position, values.mean(), color="#2b6cb0" if position else "#718096", alpha=0.8)
        axis.plot(values, [-position] * len(values), "k.", markersize=4)
    axis.set_yticks([-position for position in range(len(rungs))], [rung.name for rung in rungs])
    axis.set(xlabel="accuracy on fresh images, %")
    plt.show()
    plain = found[rungs[1].name]
    for rung in rungs[2:]:
        difference, low, high, verdict = compare(plain, found[rung.name])
        print(f"{rung.name:<30} {100 * difference:+6.1f} points, {100 * low:+.1f} to {100 * high:+.1f}: {verdict}")
    linear = np.mean(found[rungs[3].name])
    gains = {"linear_rule": 100 * float(linear - np.mean(plain))}
    if not QUICK:
        gains["train_longer"] = 100 * float(np.mean(found[rungs[-1].name]) - np.mean(found[rungs[2].name]))
    return gains


def _all(rungs: Sequence[Rung], seeds: Sequence[int]) -> dict[str, list[float]]:
    """Accuracies of every rung and seed, as many trainings at once as this machine has cores."""
    cells = [(rung, seed) for seed in seeds for rung in rungs]
    with ThreadPoolExecutor(max(1, usable_cores())) as pool:
        accuracies = list(pool.map(lambda cell: run_ranks(train, 1, *cell, timeout_s=900)[0], cells))
    found: dict[str, list[float]] = {rung.name: [] for rung in rungs}
    for (rung, _), accuracy in zip(cells, accuracies, strict=True):
        found[rung.name].append(accuracy)
    return found


def train(rung: Rung, seed: int) -> float:
    """Accuracy on fresh images after one training; runs on a rank of its own."""
    images, labels = map(torch.from_numpy, draw(8192, seed=1))
    held, truth = map(torch.from_numpy, draw(2048, seed=2))
    torch.manual_seed(seed)
    model = SmallCNN()
    if rung.ghost:
        with_batch_norm(model, "ghost", ghost_size=rung.ghost, momentum=None, device=torch.device("cpu"))
    optimizer = build_optimizer(rung.optimizer, model, Settings(lr=rung.rate, momentum=0.9, betas=(0.95, 0.98)))
    total = rung.epochs * -(-len(labels) // rung.batch)
    warm = round(rung.warmup * total)
    step = 0
    for _ in range(rung.epochs):
        for rows in torch.randperm(len(labels)).split(rung.batch):
            part = (step + 1) / warm if step < warm else 1 - (step - warm) / (total - warm)
            for group in optimizer.param_groups:
                group["lr"] = rung.rate * part
            optimizer.zero_grad()
            F.cross_entropy(model(images[rows]), labels[rows], label_smoothing=rung.smoothing).backward()
            optimizer.step()
            step += 1
    model.eval()
    with torch.no_grad():
        return float((model(held).argmax(dim=1) == truth).float().mean())
