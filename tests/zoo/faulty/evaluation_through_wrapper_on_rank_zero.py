"""Train a small convnet with batch norm; rank 0 evaluates after each epoch.

zoo: faulty
faults: F78
silent: no
ends: crash
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def stripes(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 2, (n,), generator=g)
    x = torch.randn(n, 1, 8, 8, generator=g)
    x[y == 0, :, ::2] += 1.0
    x[y == 1, :, :, ::2] += 1.0
    return TensorDataset(x, y)


class Trainer:
    def __init__(self):
        self.rank = dist.get_rank()
        net = nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 2)
        )
        self.net = DistributedDataParallel(net)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
        train = stripes(256, 0)
        self.sampler = DistributedSampler(train)
        self.loader = DataLoader(train, batch_size=16, sampler=self.sampler)
        self.held_out = DataLoader(stripes(80, 1), batch_size=16)

    def epoch(self, number):
        self.net.train()
        self.sampler.set_epoch(number)
        for x, y in self.loader:
            self.opt.zero_grad()
            F.cross_entropy(self.net(x), y).backward()
            self.opt.step()

    @torch.no_grad()
    def evaluate(self):
        self.net.eval()
        hits = sum((self.net(x).argmax(1) == y).sum().item() for x, y in self.held_out)  # fault
        print(f"accuracy {hits / 80:.3f}")


def main():
    dist.init_process_group("gloo")
    trainer = Trainer()
    for number in range(3):
        trainer.epoch(number)
        if trainer.rank == 0:  # fault
            trainer.evaluate()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
