"""Train an MLP in two runs, resuming the second from a checkpoint, with a Trainer class.

zoo: faulty
faults: F95
silent: yes
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Trainer:
    def __init__(self, dataset, checkpoint):
        self.rank = dist.get_rank()
        self.path = checkpoint
        self.start = 0
        model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))
        state = torch.load(checkpoint, map_location="cpu") if os.path.exists(checkpoint) else None
        if state:
            model.load_state_dict(state["model"])
            self.start = state["epoch"] + 1
        self.model = DDP(model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        if state and self.rank == 0:
            self.optimizer.load_state_dict(state["optimizer"])  # fault
        self.sampler = DistributedSampler(dataset)
        self.loader = DataLoader(dataset, batch_size=16, sampler=self.sampler)

    def fit(self, until):
        for epoch in range(self.start, until):
            self.sampler.set_epoch(epoch)
            total = torch.zeros(2)
            for x, y in self.loader:
                loss = nn.functional.mse_loss(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                total += torch.tensor([loss.item(), 1.0])
            dist.all_reduce(total)
            if self.rank == 0:
                print(f"epoch {epoch}: mse {total[0] / total[1]:.5f}")
        self.save(until - 1)

    def save(self, epoch):
        if self.rank == 0:
            state = {
                "model": self.model.module.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "epoch": epoch,
            }
            torch.save(state, self.path)
        dist.barrier()


def main():
    dist.init_process_group("gloo")
    x = torch.randn(480, 6, generator=torch.Generator().manual_seed(9))
    dataset = TensorDataset(x, x[:, :1] * x[:, 1:2])
    Trainer(dataset, "run.pt").fit(until=2)
    Trainer(dataset, "run.pt").fit(until=4)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
