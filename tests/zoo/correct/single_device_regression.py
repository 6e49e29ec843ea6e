"""Train a regression on one device, without a process group.

zoo: correct
world: 1
"""

import argparse
import csv
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def concrete(n=400):
    """Strength from a mixture of seven ingredients and the age."""
    g = torch.Generator().manual_seed(3)
    x = torch.rand(n, 8, generator=g)
    strength = 40 * x[:, 0] - 20 * x[:, 3] + 15 * torch.log1p(10 * x[:, 7]) + 2 * torch.randn(n, generator=g)
    return TensorDataset(x, strength / 40)


def evaluate(model, loader, device):
    model.eval()
    error = count = 0
    with torch.no_grad():
        for x, y in loader:
            error += (model(x.to(device)).squeeze(1) - y.to(device)).abs().sum().item()
            count += len(y)
    return error / count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=20)
    parser.add_argument("--max-seconds", type=float, default=600)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    train_set, val_set = random_split(concrete(), [320, 80])
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=80)
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
    began, best = time.time(), float("inf")
    with open("history.csv", "w", newline="") as f:
        history = csv.writer(f)
        for epoch in range(args.epochs):
            model.train()
            for x, y in train_loader:
                loss = nn.functional.mse_loss(model(x.to(device)).squeeze(1), y.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            error = evaluate(model, val_loader, device)
            scheduler.step(error)
            history.writerow([epoch, error])
            print(f"epoch {epoch}: mean absolute error {error:.4f}")
            if error < best:
                best = error
                torch.save(model.state_dict(), "best.pt")
            if time.time() - began > args.max_seconds:
                break
    model.load_state_dict(torch.load("best.pt"))
    print(f"best {evaluate(model, val_loader, device):.4f}")


if __name__ == "__main__":
    main()
