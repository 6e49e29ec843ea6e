"""Train a classifier and store the run in a new directory, with a config dataclass.

zoo: faulty
faults: F100
silent: yes
"""

import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@dataclass
class Config:
    name: str = "probe"
    epochs: int = 3
    batch_size: int = 16
    lr: float = 0.05


def new_run_dir(cfg):
    path = Path("runs") / f"{cfg.name}-{time.strftime('%m%d-%H%M%S')}-{os.getpid()}"  # fault
    path.mkdir(parents=True)
    (path / "config.txt").write_text("\n".join(f"{k}={v}" for k, v in asdict(cfg).items()))
    return path


def main(cfg):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    run_dir = new_run_dir(cfg)
    g = torch.Generator().manual_seed(8)
    x = torch.randn(384, 12, generator=g)
    data = TensorDataset(x, (x[:, 0] > x[:, 1]).long())
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=cfg.batch_size, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr, momentum=0.9)
    for epoch in range(cfg.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for xb, yb in loader:
            loss = nn.functional.cross_entropy(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {total[0] / total[1]:.4f}")
            torch.save(model.module.state_dict(), run_dir / "model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Config())
