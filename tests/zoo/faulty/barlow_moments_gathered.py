"""Train an embedding with a redundancy-reduction loss on the batch of all ranks.

zoo: faulty
faults: F34
silent: yes
observable: no, the ranks stay equal; only a run on one process differs
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@torch.no_grad()  # fault
def concat_all_gather(tensor):
    """Stacks the rows of all ranks, the own ones at their place."""
    tensors_gather = [torch.ones_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(tensors_gather, tensor)  # fault
    return torch.cat(tensors_gather, dim=0)


def off_diagonal(m):
    n = len(m)
    return m.flatten()[:-1].view(n - 1, n + 1)[:, 1:].flatten()


class BarlowTwins(nn.Module):
    def __init__(self, features=20, dim=12, weight=0.02):
        super().__init__()
        self.weight = weight
        self.encoder = nn.Sequential(nn.Linear(features, 64), nn.GELU(), nn.Linear(64, dim))
        self.scale = nn.Parameter(torch.ones(dim))

    def forward(self, first, second):
        a = self.encoder(first) * self.scale
        b = self.encoder(second) * self.scale
        size = (a.pow(2) + b.pow(2)).mean()
        a, b = concat_all_gather(a), concat_all_gather(b)
        a = (a - a.mean(0)) / (a.std(0) + 1e-5)
        b = (b - b.mean(0)) / (b.std(0) + 1e-5)
        c = a.T @ b / len(a)
        loss = (c.diagonal() - 1).pow(2).sum() + self.weight * off_diagonal(c).pow(2).sum()
        return loss + 1e-3 * size


def distort(x):
    return x + 0.3 * torch.randn_like(x)


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(40 + rank)
    g = torch.Generator().manual_seed(1)
    x = torch.randn(480, 6, generator=g) @ torch.randn(6, 20, generator=g)
    dataset = TensorDataset(x)
    sampler = DistributedSampler(dataset, seed=3)
    loader = DataLoader(dataset, batch_size=20, sampler=sampler)
    model = DistributedDataParallel(BarlowTwins())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for (rows,) in loader:
            loss = model(distort(rows), distort(rows))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(dict(epoch=epoch, loss=round(loss.item(), 4)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
