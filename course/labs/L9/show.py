"""Pictures and experiments of lab 9: two trainings of the network of the task `shapes`, and what surrounds their ends.

Batch norm is in eval mode in all measurements here: each network's own running statistics, at every point.
"""

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
from torch import nn

from paceline.pool.warm_ranks import run_ranks
from paceline.tasks.models.small_cnn import SmallCNN
from paceline.tasks.shapes import draw

RATE = 0.1
EPOCHS = {32: 4, 256: 16}
"""By batch: with as many samples for both, the large one would not have arrived anywhere."""
QUICK = bool(os.environ.get("PACELINE_QUICK"))
IMAGES = 512
"""Training images on which the surroundings are measured."""


@dataclass(frozen=True)
class Trained:
    """The end of a training.

    Attributes:
        batch: samples a step.
        model: in eval mode.
        accuracy: on fresh images.
        loss: on the training images of the measurements.
    """

    batch: int
    model: nn.Module
    accuracy: float
    loss: float


def two_trainings() -> tuple[Trained, Trained]:
    """Batches of 32 and of 256 at the same rate, each until it has arrived."""
    with ThreadPoolExecutor(2) as pool:
        states = list(pool.map(lambda batch: run_ranks(_train, 1, batch, timeout_s=600)[0], EPOCHS))
    found = []
    for batch, state in zip(EPOCHS, states, strict=True):
        model = SmallCNN()
        model.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
        model.eval()
        held, truth = map(torch.from_numpy, draw(2048, seed=2))
        with torch.no_grad():
            accuracy = float((model(held).argmax(dim=1) == truth).float().mean())
        trained = Trained(batch, model, accuracy, float(_loss(model).detach()))
        print(f"batch {batch:>3}: loss {trained.loss:.4f} on training images, accuracy {accuracy:.3f} on fresh ones")
        found.append(trained)
    return found[0], found[1]


def _train(batch: int) -> dict[str, np.ndarray]:
    images, labels = map(torch.from_numpy, draw(2048 if QUICK else 8192, seed=1))
    torch.manual_seed(0)
    model = SmallCNN()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    for _ in range(2 if QUICK else EPOCHS[batch]):
        for rows in torch.randperm(len(labels)).split(batch):
            optimizer.zero_grad()
            F.cross_entropy(model(images[rows]), labels[rows]).backward()
            optimizer.step()
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def _data() -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = draw(IMAGES, seed=1)
    return torch.from_numpy(images), torch.from_numpy(labels)


def _loss(model: nn.Module) -> torch.Tensor:
    images, labels = _data()
    return F.cross_entropy(model(images), labels)


def slices(
    small: Trained, large: Trained, slice_1d: Callable[..., list[float]], normalised: Callable[..., Any]
) -> float:
    """Slices along three directions of fixed length and three normalised ones; the widths' ratio for the former."""
    span, points = 1.0, 15
    ticks = np.linspace(-span, span, points)
    _, axes = plt.subplots(2, 1, figsize=(6.4, 5.4), sharex=True, layout="constrained")
    widths: dict[int, list[float]] = {small.batch: [], large.batch: []}
    for row, name in enumerate(("directions of fixed length", "filter-normalised directions")):
        for colour, trained in (("#2b6cb0", small), ("#c05621", large)):
            parameters = list(trained.model.parameters())
            for seed in range(3):
                generator = torch.Generator().manual_seed(seed)
                way = normalised(parameters, generator) if row else _fixed(parameters, generator)
                losses = slice_1d(lambda trained=trained: _loss(trained.model), parameters, way, span, points)
                axes[row].plot(ticks, losses, color=colour, label=f"batch {trained.batch}" if seed == 0 else None)
                if row == 0:
                    widths[trained.batch].append(_width(ticks, losses))
        axes[row].set(ylabel="loss", ylim=(0, 4))
        axes[row].set_title(name, fontsize=10, loc="left")
        axes[row].legend(frameon=False)
    axes[1].set_xlabel("t")
    plt.show()
    return float(np.median(widths[small.batch]) / np.median(widths[large.batch]))


def _fixed(parameters: Sequence[torch.Tensor], generator: torch.Generator) -> list[torch.Tensor]:
    """A random direction of length 5, whatever the weights are."""
    way = [torch.randn(p.shape, generator=generator) if p.dim() > 1 else torch.zeros_like(p) for p in parameters]
    length = torch.cat([each.flatten() for each in way]).norm()
    return [each.detach() * 5.0 / length for each in way]


def _width(ticks: np.ndarray, losses: Sequence[float]) -> float:
    """Of the part of the line on which the loss is at most 1 above its middle."""
    below = np.array(losses) <= losses[len(losses) // 2] + 1.0
    return float(below.sum() * (ticks[1] - ticks[0]))


def curvature(small: Trained, large: Trained, top_eigenvalue: Callable[..., Any]) -> None:
    """The largest eigenvalue of the Hessian at both ends, with the learner's power iteration."""
    for trained in (small, large):
        parameters = list(trained.model.parameters())
        size = sum(p.numel() for p in parameters)

        def product(v: np.ndarray, trained: Trained = trained, parameters: list[Any] = parameters) -> np.ndarray:
            gradients = torch.autograd.grad(_loss(trained.model), parameters, create_graph=True)
            flat = torch.cat([each.flatten() for each in gradients])
            again = torch.autograd.grad(flat @ torch.from_numpy(v).to(flat.dtype), parameters)
            return torch.cat([each.flatten() for each in again]).numpy().astype(float)

        most = 15 if QUICK else 60
        value, converged = top_eigenvalue(product, size, np.random.default_rng(0), tolerance=1e-3, most=most)
        said = "" if converged else f" (not converged after {most} products)"
        print(f"batch {trained.batch:>3}: largest eigenvalue {value:.2f}{said}")


def noise(trained: Trained, noise_scale: Callable[..., float]) -> float:
    """The noise scale at the end of a training, from batches of 16 and 256 of its training images."""
    images, labels = map(torch.from_numpy, draw(4096, seed=1))
    generator = torch.Generator().manual_seed(0)
    squares: dict[int, list[float]] = {16: [], 256: []}
    for size, found in squares.items():
        for _ in range(20 if QUICK else 60):
            rows = torch.randint(len(labels), (size,), generator=generator)
            gradients = torch.autograd.grad(
                F.cross_entropy(trained.model(images[rows]), labels[rows]), list(trained.model.parameters())
            )
            found.append(float(sum(each.square().sum() for each in gradients)))
    return float(noise_scale(16, squares[16], 256, squares[256]))
