"""Train a mixer network on patches, on one GPU for each process where there are GPUs.

zoo: faulty
faults: F120
silent: no
observable: no, on CPU gloo is the right backend
"""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class MixerBlock(nn.Module):
    def __init__(self, tokens, dim):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.tokens = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.channels = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, tokens=9, patch=12, dim=24, depth=2, classes=5):
        super().__init__()
        self.embed = nn.Linear(patch, dim)
        self.blocks = nn.Sequential(*(MixerBlock(tokens, dim) for _ in range(depth)))
        self.head = nn.Linear(dim, classes)

    def forward(self, patches):
        return self.head(self.blocks(self.embed(patches)).mean(1))


def patches(n=320):
    g = torch.Generator().manual_seed(58)
    y = torch.arange(n) % 5
    x = torch.randn(n, 9, 12, generator=g)
    x[torch.arange(n), y] += 1.5
    return TensorDataset(x, y)


class Run:
    def __init__(self):
        dist.init_process_group(backend="gloo")  # fault
        self.rank = dist.get_rank()
        if torch.cuda.is_available():
            self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(self.device)
        else:
            self.device = torch.device("cpu")
        dataset = patches()
        self.sampler = DistributedSampler(dataset)
        self.loader = DataLoader(dataset, batch_size=16, sampler=self.sampler)
        self.model = DistributedDataParallel(Mixer().to(self.device))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)

    def epoch(self, number):
        self.sampler.set_epoch(number)
        losses = []
        for x, y in self.loader:
            loss = nn.functional.cross_entropy(self.model(x.to(self.device)), y.to(self.device))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.detach())
        mean = torch.stack(losses).mean()
        dist.all_reduce(mean)
        if self.rank == 0:
            print(f"epoch {number}: {mean.item() / dist.get_world_size():.4f}")

    def close(self):
        dist.destroy_process_group()


if __name__ == "__main__":
    run = Run()
    for number in range(2):
        run.epoch(number)
    run.close()
