"""(1) The limit: forward, backward, synchronisation and step on one resident, prepared batch; no data work at all."""

from __future__ import annotations

from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from contestants.base import LR, MOMENTUM, WEIGHT_DECAY, Workload, buffer_sync
from contestants.resident import load, normalise
from paceline.tasks.models.cnn import FashionCNN


class Limit:
    """The least that a data-parallel step must do.

    Args:
        synchronise: with DDP; without it, the difference is what synchronisation costs.
    """

    def __init__(self, synchronise: bool) -> None:
        self.synchronised = synchronise

    def setup(self, work: Workload) -> None:
        """See `Contestant`."""
        torch.manual_seed(work.seed)
        self.model = FashionCNN().to(memory_format=torch.channels_last)
        self.ddp: nn.Module = self.model
        if self.synchronised:
            self.ddp = DistributedDataParallel(self.model, gradient_as_bucket_view=True, **buffer_sync(False))
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY, fused=True
        )
        images, labels = load(work.root)
        mine = slice(work.rank * work.batch, (work.rank + 1) * work.batch)
        self.images, self.labels = normalise(images[mine]), labels[mine].clone()
        self.bf16 = work.bf16

    def ready(self) -> None:
        """Nothing to bring back."""

    def run(self, steps: int) -> None:
        """See `Contestant`."""
        images, labels = self.images, self.labels
        for _ in range(steps):
            with torch.autocast("cpu", torch.bfloat16) if self.bf16 else nullcontext():
                loss = F.cross_entropy(self.ddp(images), labels)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)

    def module(self) -> nn.Module:
        """See `Contestant`."""
        return self.model

    def close(self) -> None:
        """Nothing is open."""
