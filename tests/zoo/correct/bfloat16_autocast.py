"""Train a mixer-like network with bfloat16 autocast and a config dataclass.

zoo: correct
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@dataclass
class Config:
    tokens: int = 8
    dim: int = 16
    classes: int = 4
    batch_size: int = 16
    epochs: int = 3
    lr: float = 3e-3


class Mixer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(cfg.dim), nn.LayerNorm(cfg.dim)
        self.token = nn.Linear(cfg.tokens, cfg.tokens)
        self.channel = nn.Sequential(nn.Linear(cfg.dim, 2 * cfg.dim), nn.GELU(), nn.Linear(2 * cfg.dim, cfg.dim))
        self.head = nn.Linear(cfg.dim, cfg.classes)

    def forward(self, x):
        x = x + self.token(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        x = x + self.channel(self.norm2(x))
        return self.head(x.mean(1))


def main(cfg=Config()):
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(45)
    y = torch.arange(384) % cfg.classes
    x = torch.randn(384, cfg.tokens, cfg.dim, generator=g)
    x[torch.arange(384), y] += 1.0
    dataset = TensorDataset(x, y)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=cfg.batch_size, sampler=sampler)
    model = DDP(Mixer(cfg))
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    for epoch in range(cfg.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for xb, yb in loader:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model(xb)
                loss = nn.functional.cross_entropy(logits, yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item() * len(yb), len(yb)])
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {total[0] / total[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
