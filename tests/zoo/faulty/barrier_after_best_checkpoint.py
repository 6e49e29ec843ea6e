"""Train a classifier and keep the best weights; saving ends with a barrier.

zoo: faulty
faults: F87, F78
silent: no
ends: hang
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def rings(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    angle = torch.rand(n, generator=g) * 6.28
    radius = 1.0 + y + 0.2 * torch.randn(n, generator=g)
    return TensorDataset(torch.stack([radius * angle.cos(), radius * angle.sin()], 1), y)


def save_best(model, accuracy):
    torch.save({"model": model.module.state_dict(), "accuracy": accuracy}, "best.pt")
    dist.barrier()  # fault


def accuracy_of(model, data, rank, world):
    x, y = data.tensors
    with torch.no_grad():
        hits = (model.module(x[rank::world]).argmax(1) == y[rank::world]).sum()
    counts = torch.tensor([float(hits), float(len(y[rank::world]))])
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(4)
    model = DDP(nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2)))
    train, held_out = rings(320, 0), rings(101, 1)
    sampler = DistributedSampler(train)
    loader = DataLoader(train, batch_size=20, sampler=sampler)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    best = 0.0
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        accuracy = accuracy_of(model, held_out, rank, world)
        if rank == 0 and accuracy > best:
            best = accuracy
            save_best(model, accuracy)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
