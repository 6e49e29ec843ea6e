"""Fit a nonlinear regression with a config dataclass and a fixed seed for reproducibility.

zoo: faulty
faults: F02, F01
silent: yes
"""

import random
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    seed: int = 42
    epochs: int = 3
    batch_size: int = 25
    lr: float = 1e-2
    hidden: int = 48


class Waves(Dataset):
    def __init__(self, n=500):
        rng = np.random.default_rng(1)
        self.x = rng.uniform(-3, 3, size=(n, 2)).astype("float32")
        self.y = (np.sin(self.x[:, 0]) * np.cos(self.x[:, 1])).astype("float32")

    def __len__(self):
        return len(self.x)

    def __getitem__(self, idx):
        return self.x[idx], self.y[idx]


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def main(cfg: Config):
    dist.init_process_group("gloo")
    set_seed(cfg.seed)
    model = nn.Sequential(nn.Linear(2, cfg.hidden), nn.Tanh(), nn.Linear(cfg.hidden, 1))
    model = nn.parallel.DistributedDataParallel(model)
    loader = DataLoader(Waves(), batch_size=cfg.batch_size, shuffle=True)  # fault
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    for epoch in range(cfg.epochs):
        running = 0.0
        for x, y in loader:
            loss = F.mse_loss(model(x).squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.item()
        stats = torch.tensor([running, len(loader)])
        dist.all_reduce(stats)
        if dist.get_rank() == 0:
            print(f"epoch={epoch} mse={stats[0] / stats[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Config())
