"""Predict house prices from a table: functions and argparse. Launched by torchrun."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64, help="of all ranks together")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", default="prices.pt")
    return parser.parse_args()


def make_table(rows, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 12, generator=g)
    district = (x[:, 0] > 0).float()
    price = 2 * x[:, 1] - x[:, 2] * district + 0.5 * x[:, 3] ** 2 + 0.1 * torch.randn(rows, generator=g)
    # The table comes sorted by price, as exported.
    order = price.argsort()
    return TensorDataset(x[order], price[order])


def build_model():
    return nn.Sequential(nn.Linear(12, 64), nn.SiLU(), nn.Linear(64, 32), nn.SiLU(), nn.Linear(32, 1))


def train_epoch(model, loader, optimizer):
    model.train()
    for x, y in loader:
        loss = nn.functional.smooth_l1_loss(model(x).squeeze(1), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    totals = torch.zeros(3, dtype=torch.float64)
    for x, y in loader:
        error = model(x).squeeze(1) - y
        totals += torch.tensor([error.abs().sum().item(), error.square().sum().item(), len(y)])
    dist.all_reduce(totals)
    absolute, squared, count = totals.tolist()
    return absolute / count, (squared / count) ** 0.5


def main():
    args = parse_args()
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(args.seed)
    train_set, val_set = make_table(1216, seed=1), make_table(301, seed=2)
    train_sampler = DistributedSampler(train_set, seed=args.seed)
    train_loader = DataLoader(train_set, batch_size=args.batch_size // world_size, sampler=train_sampler)
    val_loader = DataLoader(Subset(val_set, range(rank, len(val_set), world_size)), batch_size=128)
    model = DistributedDataParallel(build_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    for epoch in range(args.epochs):
        train_sampler.set_epoch(epoch)
        train_epoch(model, train_loader, optimizer)
        mae, rmse = evaluate(model.module, val_loader)
        if rank == 0:
            print(f"epoch {epoch + 1}/{args.epochs} val_mae={mae:.5f} val_rmse={rmse:.5f}")
    if rank == 0:
        torch.save({"model": model.module.state_dict(), "args": vars(args)}, args.out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
