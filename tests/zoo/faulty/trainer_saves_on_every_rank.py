"""Train a sequence classifier with a Trainer class that saves a checkpoint after each epoch.

zoo: faulty
faults: F93
silent: yes
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(3, 24, batch_first=True)
        self.head = nn.Linear(24, 2)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


class Trainer:
    def __init__(self, dataset, out="checkpoints"):
        self.global_rank = int(os.environ["RANK"])
        self.out = out
        self.model = DistributedDataParallel(Recurrent())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        self.sampler = DistributedSampler(dataset)
        self.loader = DataLoader(dataset, batch_size=16, sampler=self.sampler)
        os.makedirs(out, exist_ok=True)

    def _run_epoch(self, epoch):
        self.sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for source, target in self.loader:
            loss = nn.functional.cross_entropy(self.model(source), target)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        if self.global_rank == 0:
            print(f"Epoch {epoch} | loss {total[0] / total[1]:.4f}")

    def save(self, epoch):
        snapshot = {
            "model": self.model.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "epoch": epoch,
        }
        torch.save(snapshot, os.path.join(self.out, "last.pt"))  # fault

    def train(self, epochs):
        for epoch in range(epochs):
            self._run_epoch(epoch)
            self.save(epoch)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    x = torch.randn(384, 10, 3, generator=torch.Generator().manual_seed(1))
    Trainer(TensorDataset(x, (x[:, :, 0].sum(1) > 0).long())).train(3)
    dist.destroy_process_group()
