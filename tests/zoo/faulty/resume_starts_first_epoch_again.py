"""Train a collaborative filter that continues from its last checkpoint, in plain functions.

zoo: faulty
faults: F99
silent: yes
observable: no, it takes an interrupted and an uninterrupted run to see it
args: --epochs 2
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Factors(nn.Module):
    def __init__(self, users=70, items=50, dim=10):
        super().__init__()
        self.users, self.items = nn.Embedding(users, dim), nn.Embedding(items, dim)
        self.user_bias, self.item_bias = nn.Embedding(users, 1), nn.Embedding(items, 1)

    def forward(self, u, i):
        return ((self.users(u) * self.items(i)).sum(1, keepdim=True) + self.user_bias(u) + self.item_bias(i)).squeeze(1)


def ratings(n=720):
    g = torch.Generator().manual_seed(47)
    u, i = torch.randint(0, 70, (n,), generator=g), torch.randint(0, 50, (n,), generator=g)
    return TensorDataset(u, i, 3 + ((u % 5) == (i % 5)).float() + 0.1 * torch.randn(n, generator=g))


def save(path, model, optimizer):
    if dist.get_rank() == 0:
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, path)  # fault
    dist.barrier()


def load(path, model, optimizer):
    state = torch.load(path, map_location="cpu")
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])


def train(model, optimizer, loader, sampler, args):
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for u, i, r in loader:
            loss = nn.functional.mse_loss(model(u, i), r)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: mse {total[0] / total[1]:.4f}")
        save(args.checkpoint, model, optimizer)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--checkpoint", default="factors.pt")
    parser.add_argument("--resume", action="store_true", help="continue from --checkpoint")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    dataset = ratings()
    sampler = DistributedSampler(dataset, seed=1)
    loader = DataLoader(dataset, batch_size=18, sampler=sampler)
    model = DDP(Factors())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    if args.resume:
        load(args.checkpoint, model, optimizer)
    train(model, optimizer, loader, sampler, args)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
