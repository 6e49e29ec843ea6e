"""Train a compression model with spawned processes on a table that is prepared first.

zoo: faulty
faults: F112, F104
silent: yes
launcher: python
observable: no, the processes are spawned by the script, not by the launcher
"""

import os
import socket

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

TABLE = "table.npy"


def prepare(path, rows=480, columns=16):
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(rows, 3)) @ rng.normal(size=(3, columns))
    np.save(path, factors + 0.05 * rng.normal(size=(rows, columns)))
    print("prepared", path, flush=True)


prepare(TABLE)  # fault


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class AutoEncoder(nn.Module):
    def __init__(self, columns=16, code=3):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(columns, 24), nn.Tanh(), nn.Linear(24, code))
        self.decode = nn.Sequential(nn.Linear(code, 24), nn.Tanh(), nn.Linear(24, columns))

    def forward(self, x):
        return self.decode(self.encode(x))


def train(rank, world_size, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    data = TensorDataset(torch.from_numpy(np.load(TABLE)).float())
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    model = DistributedDataParallel(AutoEncoder())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for (x,) in loader:
            loss = nn.functional.mse_loss(model(x), x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: mse {total[0] / total[1]:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, args=(2, free_port()), nprocs=2)
