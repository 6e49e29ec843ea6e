"""(6) Accelerate, as its documentation tells to convert a loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn

from contestants.base import LR, MOMENTUM, WEIGHT_DECAY, Workload
from contestants.framework_data import resident_loader
from paceline.tasks.models.cnn import FashionCNN


class AccelerateLoop:
    """`prepare` and `backward` with Accelerate's defaults. With one worker it uses no DDP, where the others do."""

    synchronised = True

    def setup(self, work: Workload) -> None:
        """See `Contestant`."""
        torch.manual_seed(work.seed)
        # One rank with Accelerate is a process without a group; it reads the same environment as torchrun's.
        self.accelerator = Accelerator(cpu=True, mixed_precision="bf16" if work.bf16 else "no")
        if self.accelerator.num_processes != work.world:
            raise RuntimeError(f"Accelerate sees {self.accelerator.num_processes} processes, not {work.world}")
        self.plain = FashionCNN().to(memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(
            self.plain.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY, fused=True
        )
        loader = resident_loader(work.root, work.batch, work.seed)
        self.model, self.optimizer, self.loader = self.accelerator.prepare(self.plain, optimizer, loader)
        self.batches = self._forever()

    def _forever(self) -> Iterator[Any]:
        while True:
            yield from self.loader

    def ready(self) -> None:
        """Nothing to bring back."""

    def run(self, steps: int) -> None:
        """See `Contestant`."""
        for _ in range(steps):
            images, labels = next(self.batches)
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(images), labels)
            self.accelerator.backward(loss)
            self.optimizer.step()

    def module(self) -> nn.Module:
        """See `Contestant`."""
        return self.plain

    def close(self) -> None:
        """Lets go of what Accelerate keeps for the life of the process."""
        self.accelerator.free_memory()
