"""Rank 0 extracts features into a cache; the other ranks wait for it, and all train on them.

zoo: faulty
faults: F86
silent: no
ends: crash
"""

import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CACHE = Path("features.pt")


def extract(documents=60):
    rows = []
    for index in range(documents):
        g = torch.Generator().manual_seed(index)
        time.sleep(0.1)
        rows.append(torch.randn(8, generator=g))
    return torch.stack(rows)


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=3))  # fault
    if dist.get_rank() == 0:
        torch.save(extract(), CACHE)  # fault
    dist.barrier()  # fault
    x = torch.load(CACHE)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=10, sampler=sampler)
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for features, target in loader:
            loss = nn.functional.mse_loss(model(features), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
