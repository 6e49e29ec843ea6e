"""Train a dropout MLP with one seed for everything, in plain functions.

zoo: faulty
faults: F64
silent: yes
"""

import random

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)  # fault


def dataset():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(600, 15)).astype(np.float32)
    y = (x[:, :5].sum(1) * x[:, 5] > 0).astype(np.int64)
    return TensorDataset(torch.from_numpy(x), torch.from_numpy(y))


def network(p=0.3):
    return nn.Sequential(
        nn.Linear(15, 128),
        nn.ReLU(),
        nn.Dropout(p),
        nn.Linear(128, 128),
        nn.ReLU(),
        nn.Dropout(p),
        nn.Linear(128, 2),
    )


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    seed_everything(1234)
    data = dataset()
    sampler = DistributedSampler(data, shuffle=True, seed=1234)
    loader = DataLoader(data, batch_size=15, sampler=sampler)
    model = DDP(network())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        model.train()
        tot = torch.zeros(2)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tot += torch.tensor([loss.item() * len(y), len(y)])
        dist.all_reduce(tot)
        if rank == 0:
            print(f"epoch {epoch} loss {tot[0] / tot[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
