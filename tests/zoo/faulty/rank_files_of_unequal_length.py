"""Train a regressor on files that are dealt out to the ranks, one list of shards for each.

zoo: faulty
faults: F79
silent: no
ends: crash
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SHARDS = [48, 64, 48, 64, 48, 96]


def read_shard(index):
    g = torch.Generator().manual_seed(index)
    x = torch.randn(SHARDS[index], 6, generator=g)
    return x, x[:, :1] - 0.5 * x[:, 3:4]


def batches(rank, world, size=16):
    for index in range(rank, len(SHARDS), world):  # fault
        x, y = read_shard(index)
        for start in range(0, len(x), size):
            yield x[start : start + size], y[start : start + size]


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    net = DDP(nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1)))
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    for epoch in range(3):
        for x, y in batches(rank, world):
            loss = nn.functional.mse_loss(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
    if rank == 0:
        torch.save(net.module.state_dict(), os.path.join(os.getcwd(), "regressor.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
