"""Losses whose landscape is known, and sessions that look at them; also what runs on ranks in these tests."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from paceline.landscape.config import LandscapeConfig
from paceline.landscape.measures import TAKE
from paceline.landscape.ranks import Ranks
from paceline.landscape.session import Session
from paceline.landscape.subject import Subject
from paceline.parallel.rank_context import StopRequest
from paceline.tasks.classify import cross_entropy
from paceline.tasks.data.arrays import Like
from paceline.tasks.task import Arrays, Loss, Task, accuracy

LIKE = Like(torch.device("cpu"), torch.float64, channels_last=False)


class Point(nn.Module):
    """A model that is nothing but its weights."""

    def __init__(self, values: Sequence[float]) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(values, dtype=torch.float64))


def quadratic(curvature: Sequence[float], minimum: Sequence[float], floor: float = 0.0) -> Task:
    """L(w) = floor + sum_i h_i (w_i - c_i)^2 / 2, the same for each of 12 samples."""
    h, c = (torch.tensor(values, dtype=torch.float64) for values in (curvature, minimum))

    def loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Loss:
        count = len(batch[0])
        return Loss(count * (floor + 0.5 * (h * (model.w - c).square()).sum()), count)

    data = Arrays(np.zeros((12, 1)))
    return Task("quadratic", lambda: Point(minimum), loss, data, data)


def dinh() -> Task:
    """L(w) = (w1 w2 - 1)^2 / 2 (Dinh et al. 2017): the same function for every (a, 1/a), with other curvature."""

    def loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Loss:
        count = len(batch[0])
        return Loss(count * 0.5 * (model.w[0] * model.w[1] - 1).square(), count)

    data = Arrays(np.zeros((4, 1)))
    return Task("dinh", lambda: Point([1.0, 1.0]), loss, data, data)


def images(samples: int, size: int = 6, classes: int = 4) -> Arrays:
    """Random images (samples, 1, size, size) float64 and labels."""
    generator = torch.Generator().manual_seed(samples)
    x = torch.randn(samples, 1, size, size, generator=generator, dtype=torch.float64)
    return Arrays(x, torch.randint(classes, (samples,), generator=generator))


def conv_net() -> nn.Module:
    """Convolution, batch norm, linear layer; weights from a fixed seed."""
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, bias=False), nn.BatchNorm2d(3), nn.Tanh(), nn.Flatten(), nn.Linear(48, 4)
    ).double()


def image_task(samples: int = 60) -> Task:
    """Cross-entropy and accuracy of `conv_net`."""
    data = images(samples)
    return Task("images", conv_net, cross_entropy(), data, data, metrics={"accuracy": accuracy})


def wide_net() -> nn.Module:
    """Many weights, so that a copy of them is more than everything else."""
    layers = (nn.Linear(n, 400) for n in (36, 400, 400, 400, 400))
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(400, 4)).double()


class Memory(TorchDispatchMode):
    """The most bytes of tensors that were made within it and lived at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[int, int] = {}
        self.peak = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        known = {leaf.untyped_storage().data_ptr() for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)}
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.untyped_storage().data_ptr() not in known:
                storage = leaf.untyped_storage()
                key = storage.data_ptr()
                if key and key not in self.alive:
                    self.alive[key] = storage.nbytes()
                    weakref.finalize(storage, self.alive.pop, key, None)
        self.peak = max(self.peak, sum(self.alive.values()))
        return result


def session(
    task: Task, model: nn.Module, folder: Path, *, ranks: Ranks | None = None, run: Path | None = None, **settings: Any
) -> Session:
    """What measures are made from, on all samples, in float64."""
    total = len(task.train_data)
    config = LandscapeConfig(**{"target": task.name, "precision": "fp64", "curvature_samples": total, **settings})
    subject = Subject(task, model, LIKE, task.train_data, run, None if run is None else 10**6, "", True)
    return Session(config, subject, ranks or Ranks(folder))


def taken_on_ranks(folder: str, names: Sequence[str], settings: dict[str, Any]) -> dict[str, np.ndarray]:
    """The arrays of some measures of `conv_net`, as this rank has them."""
    torch.use_deterministic_algorithms(True)
    found: dict[str, np.ndarray] = {}
    made = session(image_task(), conv_net(), Path(folder), chunk=7, **settings)
    for name in names:
        found |= TAKE[name](made).arrays
    return found


def bounds_on_ranks(folder: str, settings: dict[str, Any]) -> list[float | None]:
    """Keskar's and SAM's numbers of `conv_net`, as this rank has them."""
    made = session(image_task(), conv_net(), Path(folder), chunk=7, **settings)
    keskar, sam = TAKE["keskar"](made).result, TAKE["sam"](made).result
    return [*keskar.starts, *keskar.subspace_starts, *sam.starts, *sam.adaptive_starts]


def stopped_on_ranks(folder: str, settings: dict[str, Any]) -> tuple[str, int]:
    """What becomes of a surface when rank 0 alone is told to stop after its third point."""
    import torch.distributed as dist

    from paceline.landscape.ranks import Stopped

    stop = StopRequest()

    class Counting:
        told = 0

        def write(self, event: Any) -> None:
            self.told += 1
            stop.terminate = dist.get_rank() == 0 and self.told > 3

        def elapsed_s(self) -> float:
            return 0.0

    ranks = Ranks(Path(folder), stop, Counting())
    ranks._recorded_at = -1e9
    made = session(image_task(), conv_net(), Path(folder), ranks=ranks, chunk=7, **settings)
    import paceline.landscape.ranks as module

    module._PROGRESS_EVERY_S = 0.0
    try:
        TAKE["surface"](made)
    except Stopped as stopped:
        return "stopped", int(stopped.exit_code)
    return "finished", 0
