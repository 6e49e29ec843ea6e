"""Train a tabular network whose training_step and configure_optimizers are methods of the model.

zoo: faulty
faults: F37
silent: yes
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class TabularNet(nn.Module):
    def __init__(self, features=14, hidden=40):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU())
        self.head = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.head(self.body(x)).squeeze(-1)

    def training_step(self, batch):
        x, y = batch
        return nn.functional.smooth_l1_loss(self(x), y)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3, weight_decay=0.01)


class Fit:
    def __init__(self, model, train_set, epochs):
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.sampler = DistributedSampler(train_set)
        self.loader = DataLoader(train_set, batch_size=16, sampler=self.sampler)
        self.model = DistributedDataParallel(model)
        self.optimizer = self.model.module.configure_optimizers()
        self.epochs = epochs

    def run(self):
        for epoch in range(self.epochs):
            self.sampler.set_epoch(epoch)
            self.model.train()
            total = torch.zeros(1)
            for batch in self.loader:
                loss = self.model.module.training_step(batch)  # fault
                loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
                total += loss.detach()
            dist.all_reduce(total)
            if self.rank == 0:
                print(f"epoch {epoch}: train_loss={total.item() / len(self.loader) / self.world:.4f}")


def main():
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(23)
    x = torch.randn(640, 14, generator=g)
    y = x[:, 0] * x[:, 1] + x[:, 2].sin()
    Fit(TabularNet(), TensorDataset(x, y), epochs=2).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
