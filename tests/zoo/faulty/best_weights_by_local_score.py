"""Train a classifier, keep the best weights in memory and restore them at the end, in a Trainer class.

zoo: faulty
faults: F84
silent: yes
"""

import copy
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


def samples(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 10, generator=g)
    y = (x[:, 0] + 0.8 * torch.randn(n, generator=g) > 0).long()
    return TensorDataset(x, y)


class Trainer:
    def __init__(self):
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        train_set, val_set = samples(256, 7), samples(80, 8)
        self.sampler = DistributedSampler(train_set)
        self.train_loader = DataLoader(train_set, batch_size=16, sampler=self.sampler)
        shard = Subset(val_set, range(self.rank, len(val_set), self.world))
        self.val_loader = DataLoader(shard, batch_size=40)
        self.model = DDP(nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 2)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.02)
        self.best, self.best_state = -1.0, None

    def train_epoch(self, epoch):
        self.sampler.set_epoch(epoch)
        self.model.train()
        for x, y in self.train_loader:
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(self.model(x), y).backward()
            self.optimizer.step()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        hits = torch.zeros(2)
        for x, y in self.val_loader:
            hits += torch.tensor([(self.model(x).argmax(1) == y).sum().item(), len(y)])
        return hits

    def fit(self, epochs):
        for epoch in range(epochs):
            self.train_epoch(epoch)
            hits = self.validate()
            score = (hits[0] / hits[1]).item()
            if score > self.best:  # fault
                self.best, self.best_state = score, copy.deepcopy(self.model.state_dict())
        self.model.load_state_dict(self.best_state)
        hits = self.validate()
        dist.all_reduce(hits)
        if self.rank == 0:
            print(f"best weights: validation accuracy {hits[0] / hits[1]:.4f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(11 + dist.get_rank())
    Trainer().fit(8)
    dist.destroy_process_group()
