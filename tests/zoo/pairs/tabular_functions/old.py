"""Predict house prices from a table: functions and argparse. One device."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
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
    absolute = squared = count = 0
    for x, y in loader:
        error = model(x).squeeze(1) - y
        absolute += error.abs().sum().item()
        squared += error.square().sum().item()
        count += len(y)
    return absolute / count, (squared / count) ** 0.5


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    train_set, val_set = make_table(1216, seed=1), make_table(301, seed=2)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=128)
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    for epoch in range(args.epochs):
        train_epoch(model, train_loader, optimizer)
        mae, rmse = evaluate(model, val_loader)
        print(f"epoch {epoch + 1}/{args.epochs} val_mae={mae:.5f} val_rmse={rmse:.5f}")
    torch.save({"model": model.state_dict(), "args": vars(args)}, args.out)


if __name__ == "__main__":
    main()
