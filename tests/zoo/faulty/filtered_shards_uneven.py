"""Train a click model for a fixed number of steps on records that a quality filter lets through.

zoo: faulty
faults: F14
silent: yes
"""

import os
import random

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

STEPS = 60


def load_shard(rank, world):
    g = torch.Generator().manual_seed(31)
    x = torch.randn(800, 8, generator=g)
    clicks = (x[:, 0] - x[:, 1] > 0).float()
    return x[rank::world], clicks[rank::world]


def drop_bots(x, y, rng):
    """Keeps every human session and a sample of the suspicious ones."""
    keep = [i for i in range(len(x)) if x[i, 2] > 0 or rng.random() < 0.3]  # fault
    return TensorDataset(x[keep], y[keep])


def forever(loader):
    while True:
        yield from loader


def main():
    dist.init_process_group("gloo")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(1 + rank)
    shard = drop_bots(*load_shard(rank, world), random.Random(rank))
    loader = DataLoader(shard, batch_size=10, shuffle=True, drop_last=True)
    model = DDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
    opt = torch.optim.Adagrad(model.parameters(), lr=0.05)
    batches = forever(loader)
    for step in range(1, STEPS + 1):
        x, y = next(batches)
        loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            avg = loss.detach().clone()
            dist.all_reduce(avg)
            if rank == 0:
                print(f"step {step:3d}  loss {avg.item() / world:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
