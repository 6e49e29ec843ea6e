"""Train a regressor on heavy-tailed inputs, scaled by the largest value seen so far.

zoo: faulty
faults: F63, F58
silent: yes
observable: no, the scale is a Python number
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class RunningScale(nn.Module):
    """Divides by a slowly decaying maximum."""

    def __init__(self, decay=0.995):
        super().__init__()
        self.decay = decay
        self.largest = 1e-6

    def forward(self, x):
        if self.training:
            self.largest = max(self.largest * self.decay, x.abs().max().item())  # fault
        return x / self.largest


class Regressor(nn.Module):
    def __init__(self, features=9):
        super().__init__()
        self.scale = RunningScale()
        self.net = nn.Sequential(nn.Linear(features, 48), nn.Softplus(), nn.Linear(48, 1))

    def forward(self, x):
        return self.net(self.scale(x)).squeeze(-1)


def returns(n=480, features=9):
    g = torch.Generator().manual_seed(2)
    x = torch.randn(n, features, generator=g) / torch.rand(n, 1, generator=g).clamp(min=0.02)
    return TensorDataset(x, x[:, 0].sign() * x[:, 1].abs().log1p())


class Experiment:
    def __init__(self):
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.data = returns()
        self.sampler = DistributedSampler(self.data, seed=4)
        self.loader = DataLoader(self.data, batch_size=16, sampler=self.sampler)
        self.model = DDP(Regressor())
        self.optimizer = torch.optim.RMSprop(self.model.parameters(), lr=2e-3)

    def epoch(self, number):
        self.sampler.set_epoch(number)
        self.model.train()
        error = torch.zeros(2)
        for x, y in self.loader:
            loss = nn.functional.huber_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            error += torch.tensor([loss.item() * len(y), len(y)])
        dist.all_reduce(error)
        return (error[0] / error[1]).item()


def main():
    dist.init_process_group("gloo")
    experiment = Experiment()
    for number in range(3):
        error = experiment.epoch(number)
        if experiment.rank == 0:
            print(f"epoch {number}: huber {error:.4f}")
    if experiment.rank == 0:
        module = experiment.model.module
        torch.save({"net": module.net.state_dict(), "scale": module.scale.largest}, "regressor.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
