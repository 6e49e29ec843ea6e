"""Train a small denoising diffusion model on two-dimensional points, with a config dataclass.

zoo: faulty
faults: F64
silent: yes
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@dataclass(frozen=True)
class Config:
    timesteps: int = 50
    batch: int = 32
    epochs: int = 4
    lr: float = 2e-3
    seed: int = 0


class Denoiser(nn.Module):
    def __init__(self, timesteps):
        super().__init__()
        self.time = nn.Embedding(timesteps, 32)
        self.inp = nn.Linear(2, 32)
        self.net = nn.Sequential(nn.SiLU(), nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 2))

    def forward(self, x, t):
        return self.net(self.inp(x) + self.time(t))


def two_moons(n=768):
    g = torch.Generator().manual_seed(3)
    angle = torch.rand(n, generator=g) * torch.pi
    upper = torch.arange(n) % 2 == 0
    x = torch.where(upper, angle.cos(), 1 - angle.cos())
    y = torch.where(upper, angle.sin(), 0.5 - angle.sin())
    return TensorDataset(torch.stack([x, y], 1))


def main(cfg=Config()):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(cfg.seed)
    alpha_bar = torch.cumprod(1 - torch.linspace(1e-3, 0.1, cfg.timesteps), dim=0)
    data = two_moons()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=cfg.batch, sampler=sampler, num_workers=1)
    model = DDP(Denoiser(cfg.timesteps))
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    for epoch in range(cfg.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for (x0,) in loader:
            t = torch.randint(0, cfg.timesteps, (len(x0),))  # fault
            noise = torch.randn_like(x0)  # fault
            a = alpha_bar[t].unsqueeze(1)
            xt = a.sqrt() * x0 + (1 - a).sqrt() * noise
            loss = (model(xt, t) - noise).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() / len(loader)
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: noise mse {total.item() / world:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
