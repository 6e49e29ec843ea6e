"""Train in two runs with a Trainer class: all ranks restore model, optimizer, schedule and random state.

zoo: correct
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Trainer:
    def __init__(self, dataset, directory="snapshots"):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.directory = directory
        torch.manual_seed(40 + self.rank)
        self.model = DDP(nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Dropout(0.1), nn.Linear(48, 2)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=5e-3)
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, gamma=0.8)
        self.sampler = DistributedSampler(dataset, seed=40)
        self.loader = DataLoader(dataset, batch_size=16, sampler=self.sampler)
        self.epoch = 0
        self.resume()

    def path(self, name):
        return os.path.join(self.directory, name)

    def resume(self):
        found = [os.path.exists(self.path("last.pt")) if self.rank == 0 else None]
        dist.broadcast_object_list(found, src=0)
        if not found[0]:
            return
        state = torch.load(self.path("last.pt"), map_location="cpu")
        self.model.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.epoch = state["epoch"]
        torch.set_rng_state(torch.load(self.path(f"rng-{self.rank}.pt"), map_location="cpu"))

    def save(self):
        if self.rank == 0:
            os.makedirs(self.directory, exist_ok=True)
        dist.barrier()
        torch.save(torch.get_rng_state(), self.path(f"rng-{self.rank}.pt"))
        dist.barrier()
        if self.rank == 0:
            state = {
                "model": self.model.module.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "schedule": self.schedule.state_dict(),
                "epoch": self.epoch,
            }
            torch.save(state, self.path("last.pt.tmp"))
            os.replace(self.path("last.pt.tmp"), self.path("last.pt"))
        dist.barrier()

    def fit(self, until):
        while self.epoch < until:
            self.sampler.set_epoch(self.epoch)
            total = torch.zeros(2)
            for x, y in self.loader:
                loss = nn.functional.cross_entropy(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                total += torch.tensor([loss.item(), 1.0])
            self.schedule.step()
            self.epoch += 1
            dist.all_reduce(total)
            if self.rank == 0:
                print(f"epoch {self.epoch}: loss {total[0] / total[1]:.4f}")
        self.save()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    x = torch.randn(384, 8, generator=torch.Generator().manual_seed(5))
    data = TensorDataset(x, (x[:, 0] > x[:, 1:3].amax(1)).long())
    Trainer(data).fit(until=2)
    Trainer(data).fit(until=4)
    dist.destroy_process_group()
