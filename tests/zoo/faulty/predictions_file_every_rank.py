"""Train a forecaster and store predictions for the test set, with argparse and functions.

zoo: faulty
faults: F93
silent: yes
"""

import argparse
import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


def lagged(n, lags=8, seed=0):
    rng = np.random.default_rng(seed)
    series = np.sin(np.arange(n + lags) / 5) + 0.1 * rng.normal(size=n + lags)
    windows = np.lib.stride_tricks.sliding_window_view(series, lags + 1)[:n]
    windows = torch.tensor(windows.copy(), dtype=torch.float32)
    return TensorDataset(windows[:, :-1], windows[:, -1])


def train(model, loader, sampler, epochs, lr):
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x).squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item() * len(y), len(y)])
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: mse {total[0] / total[1]:.4f}")


@torch.no_grad()
def predict(model, dataset):
    model.eval()
    return torch.cat([model(x).squeeze(1) for x, _ in DataLoader(dataset, batch_size=32)]).numpy()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--out", default="outputs")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    train_set, test_set = lagged(400), lagged(80, seed=1)
    sampler = DistributedSampler(train_set)
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)))
    train(model, DataLoader(train_set, batch_size=20, sampler=sampler), sampler, args.epochs, args.lr)

    os.makedirs(args.out, exist_ok=True)
    shard = Subset(test_set, range(rank, len(test_set), world))
    np.save(os.path.join(args.out, "predictions.npy"), predict(model, shard))  # fault
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
