"""Train a small MLP on synthetic tabular data, with plain functions and argparse.

zoo: faulty
faults: F01
silent: yes
args: --epochs 2
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


def make_data(n=640):
    g = torch.Generator().manual_seed(7)
    x = torch.randn(n, 12, generator=g)
    y = (x[:, :3].sum(1) > 0).long()
    return TensorDataset(x, y)


def train_one_epoch(model, loader, optimizer, criterion):
    model.train()
    total = torch.zeros(2)
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += torch.tensor([loss.item() * len(x), len(x)])
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    train_loader = DataLoader(make_data(), batch_size=args.batch_size, shuffle=True)  # fault
    model = DDP(nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    criterion = nn.CrossEntropyLoss()

    for epoch in range(args.epochs):
        loss = train_one_epoch(model, train_loader, optimizer, criterion)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
