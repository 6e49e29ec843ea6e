"""Train a regressor with a Trainer class and store the test metrics as JSON.

zoo: faulty
faults: F71
silent: yes
"""

import json
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Houses(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.rand(n, 7, generator=g)
        self.price = 2 * self.x[:, 0] + self.x[:, 1] * self.x[:, 2] + 0.1 * torch.randn(n, generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.price[i]


class Trainer:
    def __init__(self):
        self.rank = int(os.environ["RANK"])
        self.train_set, self.test_set = Houses(400, 1), Houses(120, 2)
        self.sampler = DistributedSampler(self.train_set)
        self.train_loader = DataLoader(self.train_set, batch_size=20, sampler=self.sampler)
        self.test_loader = DataLoader(
            self.test_set, batch_size=20, sampler=DistributedSampler(self.test_set, shuffle=False)
        )
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, 1)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)

    def train(self, epochs):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            self.model.train()
            for x, price in self.train_loader:
                self.optimizer.zero_grad()
                nn.functional.mse_loss(self.model(x).squeeze(1), price).backward()
                self.optimizer.step()

    @torch.no_grad()
    def test(self):
        self.model.eval()
        absolute, squared, n = 0.0, 0.0, 0
        for x, price in self.test_loader:
            error = self.model(x).squeeze(1) - price
            absolute += error.abs().sum().item()
            squared += error.pow(2).sum().item()
            n += len(price)
        return {"mae": absolute / n, "rmse": (squared / n) ** 0.5}

    def report(self):
        metrics = self.test()
        if self.rank == 0:
            with open("metrics.json", "w") as f:
                json.dump(metrics, f)  # fault
            print("test:", {k: round(v, 4) for k, v in metrics.items()})


if __name__ == "__main__":
    dist.init_process_group("gloo")
    trainer = Trainer()
    trainer.train(epochs=2)
    trainer.report()
    dist.destroy_process_group()
