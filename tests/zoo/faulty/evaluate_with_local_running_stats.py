"""Train and validate a convnet with batch normalization, sharding both sets over the ranks.

zoo: faulty
faults: F57, F56
silent: yes
"""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 12, 3, padding=1)
        self.bn = nn.BatchNorm2d(12)
        self.fc = nn.Linear(12 * 16, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn(self.conv(x))), 2)
        return self.fc(x.flatten(1))


def make_split(n, seed):
    y = torch.arange(n) % 5
    x = torch.randn(n, 1, 8, 8, generator=torch.Generator().manual_seed(seed))
    x[torch.arange(n), 0, y] += 1.0
    return TensorDataset(x, y)


def train_epoch(model, loader, optimizer):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    totals = torch.zeros(3)
    for x, y in loader:
        logits = model.module(x)  # fault
        totals[0] += F.cross_entropy(logits, y, reduction="sum")
        totals[1] += (logits.argmax(1) == y).sum()
        totals[2] += len(y)
    dist.all_reduce(totals)
    return (totals[0] / totals[2]).item(), (totals[1] / totals[2]).item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    train_set, val_set = make_split(640, 1), make_split(151, 2)
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=32, sampler=sampler)
    val_loader = DataLoader(Subset(val_set, range(rank, len(val_set), world)), batch_size=32)
    model = DDP(ConvNet())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        train_epoch(model, train_loader, optimizer)
        loss, acc = evaluate(model, val_loader)
        if rank == 0:
            print(f"epoch {epoch}: val loss {loss:.4f} acc {acc:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
