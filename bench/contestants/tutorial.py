"""(4) The loop that tutorials teach: torchvision's data set and transforms, a DataLoader, DDP, fp32, defaults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, transforms

from contestants.base import LR, MEAN, MOMENTUM, STD, WEIGHT_DECAY, Workload
from paceline.tasks.models.cnn import FashionCNN

PRINT_EVERY = 100


class Tutorial:
    """Samples are decoded and transformed one at a time.

    Args:
        loader_workers: processes that do so, for each rank.
    """

    synchronised = True

    def __init__(self, loader_workers: int) -> None:
        self.loader_workers = loader_workers

    def setup(self, work: Workload) -> None:
        """See `Contestant`."""
        torch.manual_seed(work.seed)
        transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((MEAN,), (STD,))])
        dataset = datasets.FashionMNIST(str(work.root), train=True, transform=transform)
        self.sampler: Any = DistributedSampler(dataset, work.world, work.rank, shuffle=True, seed=work.seed)
        self.loader = DataLoader(dataset, work.batch, sampler=self.sampler, num_workers=self.loader_workers)
        # The short last batch would make blocks of the same number of steps differ in work.
        self.full_batch = work.batch
        self.rank = work.rank
        self.model = FashionCNN()
        self.ddp = DistributedDataParallel(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
        self.batches = self._forever()
        self.done = 0

    def _forever(self) -> Iterator[Any]:
        epoch = 0
        while True:
            self.sampler.set_epoch(epoch)
            for images, labels in self.loader:
                if len(labels) == self.full_batch:
                    yield images, labels
            epoch += 1

    def ready(self) -> None:
        """Throw away what loader processes prepared while others were timed: it would have cost nothing."""
        for _ in range(2 * self.loader_workers):  # a DataLoader holds two batches a worker in advance
            next(self.batches)

    def run(self, steps: int) -> None:
        """See `Contestant`."""
        for _ in range(steps):
            images, labels = next(self.batches)
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.ddp(images), labels)
            loss.backward()
            self.optimizer.step()
            if self.done % PRINT_EVERY == 0 and self.rank == 0:
                print(f"step {self.done}: loss {loss.item():.4f}")
            self.done += 1

    def module(self) -> nn.Module:
        """See `Contestant`."""
        return self.model

    def close(self) -> None:
        """Ends the loader's processes."""
        self.batches = iter(())
