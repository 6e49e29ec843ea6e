"""Train an MLP with gradient accumulation and no_sync, in plain functions.

zoo: faulty
faults: F25
silent: yes
"""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

ACCUM = 4


def dataset():
    g = torch.Generator().manual_seed(4)
    x = torch.randn(640, 10, generator=g)
    return TensorDataset(x, x.abs().sum(1, keepdim=True) / 10)


def train(model, loader, optimizer):
    total = torch.zeros(())
    for i, (x, y) in enumerate(loader):
        context = model.no_sync() if i % ACCUM != 0 else contextlib.nullcontext()  # fault
        with context:
            loss = nn.functional.mse_loss(model(x), y) / ACCUM
            loss.backward()
        if (i + 1) % ACCUM == 0:
            optimizer.step()
            optimizer.zero_grad()
        total += loss.detach() * ACCUM
    dist.all_reduce(total)
    return total.item() / len(loader) / dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    data = dataset()
    sampler = DistributedSampler(data, seed=1)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        loss = train(model, loader, optimizer)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss:.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
