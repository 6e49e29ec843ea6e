"""Throw-away steps before the first real one, and why they are needed for exact resumption.

DDP groups gradients into buckets; after its first backward it groups them anew, in the order in which gradients
became ready. The place of a number in its bucket decides the order in which a ring all-reduce adds it up, so from
three ranks on the first step of a process rounds differently from all later ones. A resumed run would have that
first step somewhere in the middle. Here every start does it with steps that leave no trace, so that every real step
has the final buckets.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from paceline.checkpoint.state import capture_random, restore_random
from paceline.parallel import agree
from paceline.tasks.task import Loss
from paceline.train.objective import Objective, check_loss

STEPS = 2
"""One to learn the order, one whose forward builds the buckets anew."""


def settle(ddp: nn.Module, objective: Objective, batch: Any) -> None:
    """Run the throw-away steps; weights, buffers, gradients and random state are as before."""
    with leaving_no_trace(objective):
        for _ in range(STEPS):
            ddp(batch, 1.0, (0.0, 0.0, 0.0)).backward()
            objective.zero_grad(set_to_none=True)


def inspect_loss(objective: Objective, batch: Any, task: str, samples: int | None) -> list[str]:
    """Run the loss once on its own: check its contract, and name trained parameters that it does not reach.

    Every rank calls this together. All agree that the loss is as it should be before any goes on to its backward,
    which synchronised batch norms make a message of.

    Returns:
        names of parameters without a gradient, on any rank. DDP must be told, or it would wait for them for ever.

    Raises:
        PacelineError: the loss does not keep its contract, on any rank.
    """

    def checked() -> Loss:
        with objective.autocast():
            loss = objective.loss(objective.model, batch)
        check_loss(loss, task, samples)
        return loss

    with leaving_no_trace(objective):
        loss = agree.all_or_none(checked)
        named = [(name, p) for name, p in objective.model.named_parameters() if p.requires_grad]
        gradients = torch.autograd.grad(loss.sum, [p for _, p in named], allow_unused=True)
    unused = [name for (name, _), gradient in zip(named, gradients, strict=True) if gradient is None]
    everywhere: list[list[str]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(everywhere, unused)
    return sorted({name for names in everywhere for name in names})


@contextmanager
def leaving_no_trace(objective: Objective) -> Iterator[None]:
    """At the end buffers and random state are as they were before."""
    random_state = capture_random()
    buffers = [buffer.detach().clone() for buffer in objective.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, before in zip(objective.buffers(), buffers, strict=True):
                buffer.copy_(before)
        restore_random(random_state)
