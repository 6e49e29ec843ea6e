"""Train a classifier on an archive that the first process fetches and unpacks.

zoo: faulty
faults: F103, F93
silent: yes
"""

import gzip
import json
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

ROOT = "data"


def is_main_process():
    return not dist.is_initialized() or dist.get_rank() == 0


def fetch(root):
    """Stands for a download: leaves a compressed table below `root`."""
    os.makedirs(root, exist_ok=True)
    g = torch.Generator().manual_seed(4)
    table = (torch.randn(360, 9, generator=g) * 100).round().int().tolist()
    with gzip.open(os.path.join(root, "table.json.gz"), "wt") as f:
        json.dump(table, f)


def read(root):
    with gzip.open(os.path.join(root, "table.json.gz"), "rt") as f:
        table = torch.tensor(json.load(f)) / 100
    return TensorDataset(table[:, :8], (table[:, 8] + table[:, 0] > 0).long())


def train(dataset, epochs=3):
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=15, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        totals = torch.zeros(2)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            totals += torch.tensor([loss.item() * len(y), len(y)])
        dist.all_reduce(totals)
        if is_main_process():
            print(f"epoch {epoch}: loss {totals[0] / totals[1]:.4f}")


def main():
    if is_main_process():  # fault
        fetch(ROOT)
    dist.init_process_group("gloo")
    dist.barrier()
    train(read(ROOT))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
