"""Small models whose parameters have no gradient in some steps, and the same training in plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from paceline.parallel.partition import batch_span, epoch_order, rank_spans
from paceline.tasks.classify import cross_entropy
from paceline.tasks.task import Arrays, Task

SAMPLES, BATCH, FEATURES, CLASSES = 46, 9, 6, 3
"""Batches of 9, and one of a single sample at the end: then all ranks but the first have none."""
EPOCHS = 2


class Experts(nn.Module):
    """Each sample is for one of four experts; two of them are seldom asked."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(FEATURES, CLASSES) for _ in range(4))
        self.bounds = (-1.6, 0.0, 1.6)

    def forward(self, x: Tensor) -> Tensor:
        """(samples, features) to (samples, classes)."""
        choice = torch.bucketize(x[:, 0].contiguous(), torch.tensor(self.bounds, dtype=x.dtype))
        outputs = x.new_zeros(len(x), CLASSES)
        for number, expert in enumerate(self.experts):
            rows = (choice == number).nonzero().flatten()
            if len(rows):
                outputs = outputs.index_add(0, rows, expert(x[rows]))
        return outputs


class Counting(nn.Module):
    """Counts its training forwards in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, 8)
        self.side = nn.Linear(8, 8)
        self.last = nn.Linear(8, CLASSES)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        """(samples, features) to (samples, classes)."""
        self.before(int(self.calls))
        hidden = torch.tanh(self.first(x))
        if self.takes_side(int(self.calls)):
            hidden = hidden + torch.tanh(self.side(hidden))
        if self.training:
            self.calls += 1
        return self.last(hidden)

    def before(self, calls: int) -> None:
        """What the model changes about itself first."""

    def takes_side(self, calls: int) -> bool:
        """Whether the branch is taken."""
        return True


class ComesLate(Counting):
    """The branch's first gradient comes after others have momentum."""

    def takes_side(self, calls: int) -> bool:
        """See the class."""
        return calls >= 4


class ComesAndGoes(Counting):
    """The branch is taken at first, left out, and taken again."""

    def takes_side(self, calls: int) -> bool:
        """See the class."""
        return calls % 5 < 3


class Freezes(Counting):
    """The model freezes its first layer for a while."""

    def before(self, calls: int) -> None:
        """See the class."""
        self.first.requires_grad_(not 3 <= calls < 8)


class Unfreezes(Counting):
    """A layer is frozen when training begins, and the model unfreezes it later."""

    def __init__(self) -> None:
        super().__init__()
        self.first.requires_grad_(False)

    def before(self, calls: int) -> None:
        """See the class."""
        self.first.requires_grad_(calls >= 5)


class Hooked(ComesAndGoes):
    """With a hook on the gradient of the branch, which fails without one."""

    def __init__(self) -> None:
        super().__init__()
        self.side.weight.register_hook(lambda gradient: gradient * 0.5)


class SparseWords(nn.Module):
    """An embedding with sparse gradients, of columns cut into words; in some batches a second one is not asked."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(40, 5, sparse=True)
        self.rare = nn.Embedding(7, 5, sparse=True)
        self.last = nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """(samples, features) to (samples, classes)."""
        tokens = (x * 7).long().abs() % 40
        hidden = self.words(tokens).mean(1)
        rare = (x[:, 0] > 1.3).nonzero().flatten()
        if len(rare):
            hidden = hidden.index_add(0, rare, self.rare(tokens[rare, 0] % 7))
        return self.last(torch.tanh(hidden))


class Waves(nn.Module):
    """Complex weights beside real ones."""

    def __init__(self) -> None:
        super().__init__()
        self.wave = nn.Parameter(torch.view_as_complex(torch.randn(FEATURES, 8, 2)))
        self.last = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """(samples, features) to (samples, classes)."""
        return self.last((x.to(self.wave.dtype) @ self.wave).abs())


class Depth(Counting):
    """Stochastic depth: the branch is taken by chance."""

    def takes_side(self, calls: int) -> bool:
        """See the class."""
        return bool(torch.rand(()) < 0.5)


class DepthWithNorm(Depth):
    """The branch that is taken by chance has a batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.side = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))


class RunningMean(nn.Module):
    """Centers by the mean of all it has seen, which is not what batch norm does; and has a mask and an index."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, 8)
        self.last = nn.Linear(8, CLASSES)
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("unsaved", torch.zeros(8), persistent=False)
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
        self.register_buffer("index", torch.arange(5))

    def forward(self, x: Tensor) -> Tensor:
        """(samples, features) to (samples, classes)."""
        hidden = self.first(x)
        if self.training:
            for mean in (self.mean, self.unsaved):
                mean.lerp_(hidden.detach().mean(0), 0.1)
        else:
            hidden = hidden - self.mean
        return self.last(torch.tanh(hidden))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "experts": Experts,
    "comes late": ComesLate,
    "comes and goes": ComesAndGoes,
    "freezes": Freezes,
    "unfreezes": Unfreezes,
    "hooked": Hooked,
    "sparse": SparseWords,
    "complex": Waves,
}


def points() -> tuple[Tensor, Tensor]:
    """(samples, features) float64, (samples,)."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(SAMPLES, FEATURES, generator=generator, dtype=torch.float64)
    return x, torch.randint(CLASSES, (SAMPLES,), generator=generator)


def task_of(model: Callable[[], nn.Module], samples: int = SAMPLES) -> Task:
    """A classification with that model."""
    x, y = (column[:samples] for column in points())
    return Task("absent", model, cross_entropy(), Arrays(x, y), Arrays(x[:10], y[:10]), count="samples")


def doubled(model: nn.Module) -> nn.Module:
    """The model in float64, complex numbers as pairs of them."""

    def double(value: Tensor) -> Tensor:
        wide = torch.complex128 if value.is_complex() else torch.float64
        return value.to(wide) if value.is_floating_point() or value.is_complex() else value

    return model._apply(double)


def one_process(
    name: str | Callable[[], nn.Module],
    optimizer: Callable[[nn.Module], torch.optim.Optimizer],
    *,
    samples: int = SAMPLES,
    batch: int = BATCH,
    accumulate: int = 1,
    clip: float | None = None,
) -> list[np.ndarray]:
    """Weights and buffers after a training in one process and plain PyTorch, gradients set to None before each step."""
    torch.manual_seed(0)
    model = doubled(MODELS[name]() if isinstance(name, str) else name())
    stepper = optimizer(model)
    x, y = (column[:samples] for column in points())
    for epoch in range(EPOCHS):
        order = torch.from_numpy(epoch_order(samples, 0, epoch))
        for index in range(-(-samples // batch)):
            whole = batch_span(samples, batch, index)
            stepper.zero_grad(set_to_none=True)
            for span in rank_spans(whole, 1, 0, accumulate):
                rows = order[span.start : span.stop]
                if len(rows):
                    (functional.cross_entropy(model(x[rows]), y[rows], reduction="sum") / len(whole)).backward()
            if clip is not None:
                _clip(model, clip)
            stepper.step()
    return [value.detach().numpy() for value in (*model.parameters(), *model.buffers())]


def _clip(model: nn.Module, most: float) -> None:
    """Written out, since torch's takes no sparse gradient."""
    gradients = [p.grad.to_dense() for p in model.parameters() if p.grad is not None]
    length = float(torch.sqrt(sum((g.abs() ** 2).sum() for g in gradients)))
    for p in model.parameters():
        if p.grad is not None:
            p.grad = p.grad * min(1.0, most / (length + 1e-6))


def flags(**changes: Any) -> dict[str, Any]:
    """Settings that match `one_process`."""
    common = {
        "task": "absent",
        "global_batch": BATCH,
        "epochs": EPOCHS,
        "optimizer": "sgd",
        "lr": 0.1,
        "momentum": 0.9,
        "weight_decay": 0.0,
        "schedule": "constant",
        "precision": "fp64",
        "eval_every": "1000",
        "checkpoint_every": "1000",
    }
    return {key: value for key, value in (common | changes).items() if value is not None}


def worst(ours: list[np.ndarray], reference: list[np.ndarray]) -> float:
    """The largest relative difference of a tensor."""
    return max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in zip(ours, reference, strict=True))
