"""Train a residual MLP with a one-cycle schedule that counts the steps of the sharded loader.

zoo: correct
args: --epochs 3 --batch-size 30
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, x):
        return x + self.body(x)


def moons(n=600):
    g = torch.Generator().manual_seed(0)
    label = torch.arange(n) % 2
    angle = torch.rand(n, generator=g) * torch.pi
    x = torch.where(label == 0, angle.cos(), 1 - angle.cos())
    y = torch.where(label == 0, angle.sin(), 0.5 - angle.sin())
    return TensorDataset(torch.stack([x, y], 1) + 0.1 * torch.randn(n, 2, generator=g), label)


def main(args):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if args.batch_size % world:
        raise SystemExit(f"--batch-size must be a multiple of {world}")
    dataset = moons()
    sampler = DistributedSampler(dataset, num_replicas=world, rank=rank)
    loader = DataLoader(dataset, batch_size=args.batch_size // world, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(2, 32), Residual(32), Residual(32), nn.Linear(32, 2)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = OneCycleLR(optimizer, max_lr=args.lr, total_steps=args.epochs * len(loader))
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {total[0] / total[1]:.4f} lr {scheduler.get_last_lr()[0]:.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=60, help="over all ranks")
    parser.add_argument("--lr", type=float, default=1e-2)
    main(parser.parse_args())
