"""The single-process oracle: what the same training gives when one process sees every global batch whole.

It is the definition that data-parallel training is held to, so it is written to be read: no ranks, no accumulation,
no scaling, in float64, where right and wrong lie ten orders of magnitude apart (right runs differ from it by some
1e-15 a tensor, faults by 1e-3 and more after three steps).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from paceline.tasks.task import Loss

State = dict[str, NDArray[Any]]
"""Parameters, and buffers, by name."""


@dataclass(frozen=True)
class Problem:
    """A training, in the parts that matter.

    Attributes:
        model: builds it, with the weights that every process starts from.
        loss: loss(model, batch) -> Loss, a sum and a count.
        data: data(indices) -> a batch of these samples, a tensor or a tuple of tensors.
        optimizer: makes it from the parameters that have gradients.
        clip: largest norm of the gradient; None for no clipping.
    """

    model: Callable[[], nn.Module]
    loss: Callable[[nn.Module, Any], Loss]
    data: Callable[[Sequence[int]], Any]
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer]
    clip: float | None = None


def train_alone(problem: Problem, batches: Iterable[Sequence[int]]) -> list[State]:
    """The state before the first step and after each.

    Args:
        problem: what is trained; its model is converted to float64, and so are batches that are floating point.
        batches: indices of the samples of each global batch.

    Raises:
        ValueError: a batch without samples, which has no mean.
    """
    model = problem.model().double().train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = problem.optimizer(trained)
    states = [state_of(model)]
    for number, indices in enumerate(batches):
        if len(indices) == 0:
            raise ValueError(f"batch {number} has no samples: there is no mean over none")
        optimizer.zero_grad()
        loss = problem.loss(model, in_double(problem.data(indices)))
        (loss.sum / loss.count).backward()
        if problem.clip is not None:
            nn.utils.clip_grad_norm_(trained, problem.clip)
        optimizer.step()
        states.append(state_of(model))
    return states


def state_of(model: nn.Module) -> State:
    """A copy of its parameters and buffers; names are those of the plain model."""
    named = [*model.named_parameters(), *model.named_buffers()]
    return {name.removeprefix("module."): np.array(tensor.detach().cpu().numpy()) for name, tensor in named}


def in_double(batch: Any) -> Any:
    """A batch with its floating-point tensors in float64."""
    if isinstance(batch, Tensor):
        return batch.double() if batch.is_floating_point() else batch
    if isinstance(batch, tuple | list):
        return type(batch)(in_double(each) for each in batch)
    return batch
