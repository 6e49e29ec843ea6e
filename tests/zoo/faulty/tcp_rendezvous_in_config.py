"""Train a fusion model of two sensors, with the rendezvous in the configuration.

zoo: faulty
faults: F110
silent: no
launcher: python
observable: no, nothing else uses the port
"""

from dataclasses import dataclass, field, replace

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@dataclass
class DistConfig:
    backend: str = "gloo"
    init_method: str = "tcp://127.0.0.1:23456"  # fault
    world_size: int = 2
    rank: int = 0


@dataclass
class Config:
    epochs: int = 2
    batch_size: int = 16
    lr: float = 5e-3
    dist: DistConfig = field(default_factory=DistConfig)


class Fusion(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.radar = nn.Sequential(nn.Linear(6, dim), nn.ReLU())
        self.camera = nn.Sequential(nn.Linear(10, dim), nn.ReLU())
        self.gate = nn.Linear(2 * dim, dim)
        self.out = nn.Linear(dim, 2)

    def forward(self, radar, camera):
        r, c = self.radar(radar), self.camera(camera)
        g = torch.sigmoid(self.gate(torch.cat([r, c], dim=1)))
        return self.out(g * r + (1 - g) * c)


def scenes(n=384):
    g = torch.Generator().manual_seed(45)
    position = torch.randn(n, 2, generator=g)
    radar = position @ torch.randn(2, 6, generator=g) + 0.2 * torch.randn(n, 6, generator=g)
    camera = torch.tanh(position @ torch.randn(2, 10, generator=g)) + 0.1 * torch.randn(n, 10, generator=g)
    return TensorDataset(radar, camera, position)


def run(cfg):
    dist.init_process_group(
        cfg.dist.backend, init_method=cfg.dist.init_method, world_size=cfg.dist.world_size, rank=cfg.dist.rank
    )
    dataset = scenes()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, cfg.batch_size, sampler=sampler)
    model = DistributedDataParallel(Fusion())
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    for epoch in range(cfg.epochs):
        sampler.set_epoch(epoch)
        for radar, camera, position in loader:
            loss = nn.functional.mse_loss(model(radar, camera), position)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if cfg.dist.rank == 0:
            print(f"epoch {epoch}: mse {loss.item():.4f}")
    dist.destroy_process_group()


def launch(cfg):
    context = mp.get_context("spawn")
    ranks = [replace(cfg, dist=replace(cfg.dist, rank=rank)) for rank in range(cfg.dist.world_size)]
    processes = [context.Process(target=run, args=(each,)) for each in ranks]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return max(process.exitcode for process in processes)


if __name__ == "__main__":
    raise SystemExit(launch(Config()))
