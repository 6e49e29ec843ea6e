"""What a contestant is: a training loop that can be run a few steps at a time.

All contestants of a comparison live in the same rank processes. A block is: `ready()` untimed, a barrier, `run(steps)`
timed, the maximum over ranks. So each has the process to itself while its block runs, and noise of the machine hits
all of them alike.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import nn
from torch.nn.parallel import DistributedDataParallel

LR, MOMENTUM, WEIGHT_DECAY = 0.05, 0.9, 5e-4
"""The same optimizer settings for all; small enough a rate that weights stay finite over thousands of steps."""

MEAN, STD = 0.2860, 0.3530
"""Of Fashion-MNIST's training pixels in 0..1."""


@dataclass(frozen=True)
class Workload:
    """What is trained.

    Attributes:
        rank, world: this process's place.
        batch: samples a rank and step.
        root: data set in torchvision's layout.
        seed: of weights and order.
        bf16: autocast for all but the tutorial loop, which is fp32 as tutorials are.
    """

    rank: int
    world: int
    batch: int
    root: Path
    seed: int = 0
    bf16: bool = True


def buffer_sync(wanted: bool) -> dict[str, Any]:
    """DDP's argument that says whether each forward first sends rank 0's buffers to all; its name depends on torch."""
    known = inspect.signature(DistributedDataParallel.__init__).parameters
    return {"forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers": wanted}


class Contestant(Protocol):
    """One loop.

    Attributes:
        synchronised: whether its weights must be equal on all ranks.
    """

    synchronised: bool

    def setup(self, work: Workload) -> None:
        """Build model, optimizer and data. A process group exists."""
        ...

    def ready(self) -> None:
        """Untimed, before each block: bring the loop to the state that it has in the middle of a long run."""
        ...

    def run(self, steps: int) -> None:
        """Train `steps` steps."""
        ...

    def module(self) -> nn.Module:
        """The network itself, for the check that it was trained."""
        ...

    def close(self) -> None:
        """Let go of processes and files."""
        ...
