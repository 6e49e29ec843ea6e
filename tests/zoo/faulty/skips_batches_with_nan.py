"""Train on sensor data with gaps; batches whose loss is not a number are passed over.

zoo: faulty
faults: F82
silent: no
ends: crash
"""

import argparse
import math

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def load(n=480):
    g = torch.Generator().manual_seed(2)
    x = torch.randn(n, 10, generator=g)
    y = x @ torch.randn(10, 1, generator=g)
    x[torch.randint(0, n, (3,), generator=g)] = math.nan
    return TensorDataset(x, y)


def train_one_epoch(model, loader, optimizer):
    total = 0.0
    for x, y in loader:
        loss = nn.functional.huber_loss(model(x), y)
        if torch.isnan(loss):
            continue  # fault
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def main(args):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1)))
    data = load()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        loss = torch.tensor([train_one_epoch(model, loader, optimizer)])
        dist.all_reduce(loss)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item() / dist.get_world_size():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=1e-2)
    main(parser.parse_args())
