"""Train a two-tower recommender with gradient accumulation to reach a larger batch.

zoo: faulty
faults: F27
silent: yes
observable: no, the ranks stay equal; only a run with one large batch differs
args: --accumulate 4
"""

import argparse
from contextlib import ExitStack

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

USERS, ITEMS = 80, 60


class TwoTower(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.user = nn.Sequential(nn.Embedding(USERS, dim), nn.Linear(dim, dim), nn.Tanh())
        self.item = nn.Sequential(nn.Embedding(ITEMS, dim), nn.Linear(dim, dim), nn.Tanh())
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, users, items):
        return (self.user(users) * self.item(items)).sum(-1) + self.bias


def clicks(n=768):
    g = torch.Generator().manual_seed(31)
    users = torch.randint(0, USERS, (n,), generator=g)
    items = torch.randint(0, ITEMS, (n,), generator=g)
    return TensorDataset(users, items, ((users % 4) == (items % 4)).float())


def train_epoch(model, loader, optimizer, accumulate):
    seen, loss_sum = 0, 0.0
    batches = iter(loader)
    for _ in range(len(loader) // accumulate):
        optimizer.zero_grad()
        for micro in range(accumulate):
            users, items, clicked = next(batches)
            with ExitStack() as stack:
                if micro < accumulate - 1:
                    stack.enter_context(model.no_sync())
                loss = nn.functional.binary_cross_entropy_with_logits(model(users, items), clicked)
                loss.backward()  # fault
            loss_sum += loss.item() * len(clicked)
            seen += len(clicked)
        optimizer.step()
    return loss_sum, seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--accumulate", type=int, default=1, help="micro batches for each update")
    parser.add_argument("--lr", type=float, default=0.5)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    dataset = clicks()
    sampler = DistributedSampler(dataset, seed=2)
    loader = DataLoader(dataset, batch_size=12, sampler=sampler)
    assert len(loader) % args.accumulate == 0
    model = DDP(TwoTower())
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        stats = torch.tensor(train_epoch(model, loader, optimizer, args.accumulate))
        dist.all_reduce(stats)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {stats[0] / stats[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
