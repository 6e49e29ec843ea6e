"""Train a masked autoencoder on vectors; the seed comes from the number of the node.

zoo: faulty
faults: F67, F64
silent: yes
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class MaskedAutoEncoder(nn.Module):
    def __init__(self, features=16, ratio=0.5):
        super().__init__()
        self.ratio = ratio
        self.net = nn.Sequential(nn.Linear(2 * features, 64), nn.GELU(), nn.Linear(64, features))

    def forward(self, x):
        keep = (torch.rand_like(x) > self.ratio).float()
        out = self.net(torch.cat([x * keep, keep], dim=1))
        hidden = 1 - keep
        return ((out - x).pow(2) * hidden).sum() / hidden.sum()


def set_random_seed(base):
    node = int(os.environ.get("GROUP_RANK", 0))
    torch.manual_seed(base + node)  # fault


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    set_random_seed(10)
    g = torch.Generator().manual_seed(20)
    x = torch.randn(640, 4, generator=g) @ torch.randn(4, 16, generator=g)
    dataset = TensorDataset(x)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = DDP(MaskedAutoEncoder())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3 * len(loader))
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros(1)
        for (batch,) in loader:
            loss = model(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: {total.item() / len(loader) / dist.get_world_size():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
