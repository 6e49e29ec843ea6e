"""The toy training of lab 5, for one device. You will take it to many.

    python toy.py --epochs 3 --global-batch 64 --seed 0 --out result

It writes `log.csv` (a line an epoch: epoch, loss, right, counted) and `model.pt` (the weights).
"""

import argparse
import csv
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rings(Dataset):
    """Points in a ring or in the disc inside it."""

    def __init__(self, samples, seed):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(2, (samples,), generator=generator)
        radius = 0.8 * torch.rand(samples, generator=generator) + 0.9 * self.labels
        angle = 6.2832 * torch.rand(samples, generator=generator)
        self.points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1).double()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.points[index], self.labels[index]


def make_model():
    return nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2)).double()


def evaluate(model, data):
    """How many answers are right, and how many were asked."""
    right = counted = 0
    with torch.no_grad():
        for points, labels in DataLoader(data, batch_size=100):
            right += (model(points).argmax(dim=1) == labels).sum().item()
            counted += len(labels)
    return right, counted


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--global-batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("result"))
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    train_data, eval_data = Rings(1000, seed=1), Rings(1003, seed=2)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    loader = DataLoader(train_data, batch_size=options.global_batch, shuffle=True)

    options.out.mkdir(parents=True, exist_ok=True)
    with (options.out / "log.csv").open("w", newline="") as file:
        log = csv.writer(file)
        log.writerow(["epoch", "loss", "right", "counted"])
        for epoch in range(options.epochs):
            total = samples = 0
            for points, labels in loader:
                loss = nn.functional.cross_entropy(model(points), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item() * len(labels)
                samples += len(labels)
            right, counted = evaluate(model, eval_data)
            log.writerow([epoch, total / samples, right, counted])
            print(f"epoch {epoch}: loss {total / samples:.4f}, {right} of {counted} right")
    torch.save(model.state_dict(), options.out / "model.pt")


if __name__ == "__main__":
    main()
