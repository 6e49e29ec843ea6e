"""Train a small residual convnet on synthetic color images, with plain functions.

zoo: faulty
faults: F06
silent: yes
args: --epochs 3
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.c1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.n1 = nn.GroupNorm(4, channels)
        self.c2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return x + self.c2(F.relu(self.n1(self.c1(x))))


def build_model():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), Block(8), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 5)
    )


def build_dataset(n=320):
    g = torch.Generator().manual_seed(5)
    labels = torch.arange(n) % 5
    images = torch.randn(n, 3, 8, 8, generator=g) + labels.view(-1, 1, 1, 1).float() / 2
    return TensorDataset(images, labels)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", default=10, type=int)
    p.add_argument("--lr", default=0.05, type=float)
    args = p.parse_args()
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])

    dataset = build_dataset()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = DDP(build_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    for epoch in range(args.epochs):
        model.train()
        total = 0.0
        for images, labels in loader:  # fault
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
        mean = torch.tensor(total / len(loader))
        dist.all_reduce(mean)
        if rank == 0:
            print(f"epoch {epoch + 1}/{args.epochs} loss {mean.item() / dist.get_world_size():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
