"""Train a small policy by imitation with processes that the script spawns on a port that is free.

zoo: correct
launcher: python
"""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def find_free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def demonstrations(n=400):
    g = torch.Generator().manual_seed(35)
    state = torch.randn(n, 4, generator=g)
    return TensorDataset(state, (state[:, 2] + 0.5 * state[:, 3] > 0).long())


def run(rank, world_size, port, epochs):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    use_cuda = torch.cuda.device_count() >= world_size
    if use_cuda:
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if use_cuda else "gloo", rank=rank, world_size=world_size)
    device = torch.device("cuda", rank) if use_cuda else torch.device("cpu")
    dataset = demonstrations()
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank)
    loader = DataLoader(dataset, batch_size=20, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(4, 24), nn.Tanh(), nn.Linear(24, 2)).to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    try:
        for epoch in range(epochs):
            sampler.set_epoch(epoch)
            for state, action in loader:
                loss = nn.functional.cross_entropy(model(state.to(device)), action.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            if rank == 0:
                print(f"epoch {epoch}: {loss.item():.4f}", flush=True)
        if rank == 0:
            torch.save(model.module.state_dict(), "policy.pt")
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    processes = max(2, torch.cuda.device_count())
    mp.spawn(run, args=(processes, find_free_port(), 2), nprocs=processes)
