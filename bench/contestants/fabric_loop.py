"""(5) Lightning Fabric, as its documentation tells to convert a loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from lightning_fabric import Fabric
from torch import nn

from contestants.base import LR, MOMENTUM, WEIGHT_DECAY, Workload
from contestants.framework_data import resident_loader
from paceline.tasks.models.cnn import FashionCNN


class FabricLoop:
    """`setup`, `setup_dataloaders`, `backward`; strategy ddp with Fabric's defaults."""

    synchronised = True

    def setup(self, work: Workload) -> None:
        """See `Contestant`."""
        torch.manual_seed(work.seed)
        precision = "bf16-mixed" if work.bf16 else "32-true"
        fabric = Fabric(accelerator="cpu", strategy="ddp", devices=work.world, precision=precision)
        fabric.launch()
        model = FashionCNN().to(memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY, fused=True)
        self.plain, self.fabric = model, fabric
        self.model, self.optimizer = fabric.setup(model, optimizer)
        self.loader = fabric.setup_dataloaders(resident_loader(work.root, work.batch, work.seed))
        self.batches = self._forever()

    def _forever(self) -> Iterator[Any]:
        epoch = 0
        while True:
            set_epoch = getattr(self.loader.sampler, "set_epoch", None)
            if set_epoch is not None:
                set_epoch(epoch)
            yield from self.loader
            epoch += 1

    def ready(self) -> None:
        """Nothing to bring back."""

    def run(self, steps: int) -> None:
        """See `Contestant`."""
        for _ in range(steps):
            images, labels = next(self.batches)
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(images), labels)
            self.fabric.backward(loss)
            self.optimizer.step()

    def module(self) -> nn.Module:
        """See `Contestant`."""
        return self.plain

    def close(self) -> None:
        """Nothing is open."""
