"""Train a linear embedding with an orthogonality penalty that a method of the model computes.

zoo: correct
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Embedder(nn.Module):
    def __init__(self, features=20, dim=6, classes=5):
        super().__init__()
        self.project = nn.Linear(features, dim, bias=False)
        self.classify = nn.Linear(dim, classes)

    def forward(self, x):
        return self.classify(self.project(x))

    def orthogonality(self):
        w = self.project.weight
        return (w @ w.T - torch.eye(len(w))).pow(2).sum()


class Trainer:
    def __init__(self, dataset):
        self.rank = dist.get_rank()
        self.model = DistributedDataParallel(Embedder())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.sampler = DistributedSampler(dataset)
        self.loader = DataLoader(dataset, batch_size=15, sampler=self.sampler)

    def train_epoch(self, epoch):
        self.sampler.set_epoch(epoch)
        totals = torch.zeros(2)
        for x, y in self.loader:
            loss = nn.functional.cross_entropy(self.model(x), y)
            penalty = self.model.module.orthogonality()
            self.optimizer.zero_grad()
            (loss + 0.1 * penalty).backward()
            self.optimizer.step()
            totals += torch.stack([loss.detach(), penalty.detach()])
        dist.all_reduce(totals)
        totals /= len(self.loader) * dist.get_world_size()
        if self.rank == 0:
            print(f"epoch {epoch}: loss {totals[0]:.4f} penalty {totals[1]:.4f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(37)
    y = torch.arange(450) % 5
    x = torch.randn(5, 20, generator=g)[y] + torch.randn(450, 20, generator=g)
    trainer = Trainer(TensorDataset(x, y))
    for epoch in range(3):
        trainer.train_epoch(epoch)
    dist.destroy_process_group()
