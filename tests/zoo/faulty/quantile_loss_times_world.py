"""Train a demand forecaster with a quantile loss on grouped time series, in plain functions.

zoo: faulty
faults: F24
silent: yes
observable: no, the ranks stay equal; only a run on one process differs
"""

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

QUANTILES = torch.tensor([0.1, 0.5, 0.9])
HISTORY, GROUPS = 14, 6


def demand(days=120):
    rng = np.random.default_rng(8)
    windows, targets, groups = [], [], []
    for group in range(GROUPS):
        level = rng.uniform(0.5, 2)
        week = 0.4 * np.sin(np.arange(days) * 2 * np.pi / 7 + group)
        series = level + week + 0.1 * rng.normal(size=days)
        for start in range(days - HISTORY):
            windows.append(series[start : start + HISTORY])
            targets.append(series[start + HISTORY])
            groups.append(group)
    return TensorDataset(
        torch.tensor(np.array(windows), dtype=torch.float32), torch.tensor(groups), torch.tensor(targets).float()
    )


class Forecaster(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.group = nn.Embedding(GROUPS, dim)
        self.net = nn.Sequential(nn.Linear(HISTORY + dim, 48), nn.SiLU(), nn.Linear(48, len(QUANTILES)))

    def forward(self, window, group):
        return self.net(torch.cat([window, self.group(group)], dim=1))


def pinball(prediction, target):
    gap = target.unsqueeze(1) - prediction
    return torch.maximum(QUANTILES * gap, (QUANTILES - 1) * gap).mean()


def train_epoch(model, loader, optimizer, world_size):
    total = torch.zeros(2)
    for window, group, target in loader:
        loss = pinball(model(window, group), target)
        total += torch.stack([loss.detach() * len(target), torch.tensor(float(len(target)))])
        loss = loss * world_size  # fault
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    dataset = demand()
    sampler = DistributedSampler(dataset, drop_last=True)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler, drop_last=True)
    model = DDP(Forecaster())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, loader, optimizer, world_size)
        if rank == 0:
            print(f"epoch {epoch}: pinball loss {loss:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
