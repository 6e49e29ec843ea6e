"""Train on inputs that are normalized with statistics, which the first process computes and writes.

zoo: faulty
faults: F94
silent: no
observable: no, the others have to wait for another collective first, so that the file is nearly always there
"""

import os

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

STATS = os.path.join("cache", "stats.npz")


class Rows(Dataset):
    def __init__(self, n=480):
        rng = np.random.default_rng(3)
        self.x = (rng.normal(size=(n, 6)) * [1, 10, 100, 0.1, 5, 50] + 7).astype(np.float32)
        self.y = ((self.x[:, 0] - 7) * (self.x[:, 3] - 7) * 10).astype(np.float32)
        self.mean, self.std = 0.0, 1.0

    def normalize(self, mean, std):
        self.mean, self.std = mean.astype(np.float32), std.astype(np.float32)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return (self.x[i] - self.mean) / self.std, self.y[i]


def write_statistics(rows):
    os.makedirs(os.path.dirname(STATS), exist_ok=True)
    np.savez(STATS, mean=rows.x.mean(0), std=rows.x.std(0))


def build(rank):
    rows = Rows()
    if rank == 0:
        write_statistics(rows)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 1)))
    stats = np.load(STATS)  # fault
    rows.normalize(stats["mean"], stats["std"])
    return rows, model


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    rows, model = build(rank)
    sampler = DistributedSampler(rows)
    loader = DataLoader(rows, batch_size=16, sampler=sampler)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x).squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: mse {total[0] / total[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
