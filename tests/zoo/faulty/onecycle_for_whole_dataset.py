"""Train a classifier with a one-cycle schedule, in plain functions.

zoo: faulty
faults: F33
silent: yes
args: --epochs 3
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def spirals(n=600):
    g = torch.Generator().manual_seed(0)
    label = torch.arange(n) % 2
    t = torch.rand(n, generator=g) * 4
    angle = t + label * torch.pi
    points = torch.stack([t * angle.cos(), t * angle.sin()], dim=1) / 4
    return TensorDataset(points + 0.02 * torch.randn(n, 2, generator=g), label)


def main(args):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    dataset = spirals()
    sampler = DistributedSampler(dataset, num_replicas=world, rank=rank)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler)
    net = DDP(nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)))
    optimizer = torch.optim.AdamW(net.parameters(), lr=args.lr)
    steps_per_epoch = len(dataset) // args.batch_size
    scheduler = OneCycleLR(optimizer, max_lr=args.lr, epochs=args.epochs, steps_per_epoch=steps_per_epoch)  # fault
    criterion = nn.CrossEntropyLoss()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        loss_sum = torch.zeros(1)
        for x, y in loader:
            loss = criterion(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            loss_sum += loss.detach()
        dist.all_reduce(loss_sum)
        if rank == 0:
            lr = scheduler.get_last_lr()[0]
            print(f"epoch {epoch} loss {loss_sum.item() / world / len(loader):.4f} lr {lr:.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="one cycle")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=15)
    parser.add_argument("--lr", type=float, default=1e-2)
    main(parser.parse_args())
