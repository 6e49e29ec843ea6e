"""Train a classifier with a process group configured from Slurm variables.

zoo: faulty
faults: F128
silent: yes
"""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def init_distributed():
    rank = int(os.environ.get("SLURM_PROCID", 0))
    world_size = int(os.environ.get("SLURM_NTASKS", 1))  # fault
    rendezvous = os.environ.get("RENDEZVOUS_FILE") or os.path.join(tempfile.mkdtemp(), "rendezvous")
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world_size)
    return rank, world_size


def data(n=480):
    g = torch.Generator().manual_seed(40)
    x = torch.randn(n, 11, generator=g)
    return TensorDataset(x, (x[:, 0].abs() > x[:, 1].abs()).long())


def main():
    rank, world_size = init_distributed()
    dataset = data()
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank)
    loader = DataLoader(dataset, batch_size=32 // world_size, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(11, 48), nn.ReLU(), nn.Linear(48, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item() * len(y), len(y)])
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {total[0] / total[1]:.4f}")
    if rank == 0:
        torch.save(model.module.state_dict(), "model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
