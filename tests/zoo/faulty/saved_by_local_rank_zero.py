"""Train a wave emulator on a cluster with a shared file system, in plain functions.

zoo: faulty
faults: F107, F93
silent: yes
observable: no, there is one process with local rank 0 on one machine
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

LOCAL_RANK = int(os.environ["LOCAL_RANK"])
OUTPUT = "emulator"


def log(*words):
    if LOCAL_RANK == 0:
        print(*words, flush=True)


def waves(n=288, cells=24):
    g = torch.Generator().manual_seed(93)
    axis = torch.linspace(0, 6.2832, cells + 1)[:-1]
    k = torch.randint(1, 4, (n, 1), generator=g)
    phase = 6.2832 * torch.rand(n, 1, generator=g)
    now = torch.sin(k * axis + phase)
    later = torch.sin(k * axis + phase - 0.5 * k)
    return TensorDataset(now.unsqueeze(1), later.unsqueeze(1))


class Emulator(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.lift = nn.Conv1d(1, width, 5, padding=2, padding_mode="circular")
        self.mix = nn.Conv1d(width, width, 5, padding=2, padding_mode="circular")
        self.drop = nn.Conv1d(width, 1, 5, padding=2, padding_mode="circular")

    def forward(self, x):
        h = torch.tanh(self.lift(x))
        return self.drop(h + torch.tanh(self.mix(h)))


def save(model, optimizer, epoch):
    if LOCAL_RANK == 0:  # fault
        os.makedirs(OUTPUT, exist_ok=True)
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        torch.save(state, os.path.join(OUTPUT, "last.pt"))
    dist.barrier()


def main():
    if torch.cuda.is_available():
        torch.cuda.set_device(LOCAL_RANK)
        device = torch.device("cuda", LOCAL_RANK)
    else:
        device = torch.device("cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    data = waves()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=12, sampler=sampler)
    model = DistributedDataParallel(Emulator().to(device), device_ids=[LOCAL_RANK] if device.type == "cuda" else None)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for now, later in loader:
            loss = nn.functional.mse_loss(model(now.to(device)), later.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        log(f"epoch {epoch}: mse {loss.item():.5f}")
        save(model, optimizer, epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
