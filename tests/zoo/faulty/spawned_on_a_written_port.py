"""Train a ranking model with processes that the script spawns itself, one for each GPU.

zoo: faulty
faults: F110
silent: no
launcher: python
observable: no, nothing else uses the port
"""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def setup(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"  # fault
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, rank=rank, world_size=world_size)


def cleanup():
    dist.destroy_process_group()


class Scorer(nn.Module):
    def __init__(self, features=9):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(features, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, better, worse):
        return (self.net(better) - self.net(worse)).squeeze(1)


def comparisons(n=480):
    g = torch.Generator().manual_seed(29)
    a, b = torch.randn(n, 9, generator=g), torch.randn(n, 9, generator=g)
    swap = (a[:, :3].sum(1) < b[:, :3].sum(1)).unsqueeze(1)
    return TensorDataset(torch.where(swap, b, a), torch.where(swap, a, b))


def worker(rank, world_size, epochs):
    setup(rank, world_size)
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(rank)
    device = torch.device("cuda", rank) if cuda else torch.device("cpu")
    dataset = comparisons()
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = DDP(Scorer().to(device), device_ids=[rank] if cuda else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for better, worse in loader:
            loss = nn.functional.softplus(-model(better.to(device), worse.to(device))).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    cleanup()


def main():
    world_size = max(2, torch.cuda.device_count())
    mp.spawn(worker, args=(world_size, 2), nprocs=world_size, join=True)


if __name__ == "__main__":
    main()
