"""Train a recommender with a hold-out that is drawn with numpy, in a Trainer class.

zoo: faulty
faults: F65
silent: yes
"""

import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


def interactions():
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(50), 12)
    items = rng.integers(0, 30, size=len(users))
    ratings = ((users % 3 == items % 3) * 2.0 + rng.normal(scale=0.1, size=len(users))).astype(np.float32)
    return TensorDataset(torch.from_numpy(users), torch.from_numpy(items), torch.from_numpy(ratings))


def split(dataset, holdout=0.2):
    order = np.random.permutation(len(dataset))  # fault
    cut = int(len(dataset) * holdout)
    return Subset(dataset, order[cut:].tolist()), Subset(dataset, order[:cut].tolist())


class TwoTower(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.users, self.items = nn.Embedding(50, dim), nn.Embedding(30, dim)

    def forward(self, u, i):
        return (self.users(u) * self.items(i)).sum(1)


class Trainer:
    def __init__(self, dataset):
        self.rank = int(os.environ["RANK"])
        train_set, test_set = split(dataset)
        self.sampler = DistributedSampler(train_set)
        self.train_loader = DataLoader(train_set, batch_size=24, sampler=self.sampler)
        test_sampler = DistributedSampler(test_set, shuffle=False)
        self.test_loader = DataLoader(test_set, batch_size=60, sampler=test_sampler)
        self.model = DistributedDataParallel(TwoTower())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.05)

    def train_epoch(self, epoch):
        self.model.train()
        self.sampler.set_epoch(epoch)
        for u, i, r in self.train_loader:
            self.optimizer.zero_grad()
            nn.functional.mse_loss(self.model(u, i), r).backward()
            self.optimizer.step()

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        total = torch.zeros(2)
        for u, i, r in self.test_loader:
            total += torch.stack([(self.model(u, i) - r).pow(2).sum(), torch.tensor(float(len(r)))])
        dist.all_reduce(total)
        return (total[0] / total[1]).sqrt().item()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    trainer = Trainer(interactions())
    for epoch in range(4):
        trainer.train_epoch(epoch)
        rmse = trainer.evaluate()
        if trainer.rank == 0:
            print(f"epoch {epoch}: test rmse {rmse:.4f}")
    dist.destroy_process_group()
