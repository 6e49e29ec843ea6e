"""Train a beat tracker; what only one process may do is guarded by a decorator, a property and an early return.

zoo: correct
"""

import functools
import json
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def rank_zero_only(fn):
    @functools.wraps(fn)
    def wrapped(*args, **kwargs):
        if int(os.environ["RANK"]) == 0:
            return fn(*args, **kwargs)
        return None

    return wrapped


@rank_zero_only
def info(message):
    print(message, flush=True)


@rank_zero_only
def write_history(path, history):
    with open(path, "w") as f:
        json.dump(history, f, indent=2)


class Checkpointer:
    def __init__(self, folder):
        self.folder = folder
        if self.is_main:
            os.makedirs(folder, exist_ok=True)

    @property
    def is_main(self):
        return dist.get_rank() == 0

    def save(self, epoch, model):
        if not self.is_main:
            return
        path = os.path.join(self.folder, f"epoch_{epoch}.pt")
        torch.save(model.module.state_dict(), path)
        info(f"saved {path}")


class BeatNet(nn.Module):
    def __init__(self, bands=10, width=16):
        super().__init__()
        self.conv = nn.Conv1d(bands, width, 5, padding=2)
        self.out = nn.Conv1d(width, 1, 1)

    def forward(self, x):
        return self.out(torch.relu(self.conv(x))).squeeze(1)


def clips(n=320, frames=24):
    g = torch.Generator().manual_seed(49)
    period = torch.randint(3, 7, (n, 1), generator=g)
    beats = (torch.arange(frames) % period == 0).float()
    return TensorDataset(beats.unsqueeze(1) + 0.4 * torch.randn(n, 10, frames, generator=g), beats)


def train_epoch(model, loader, optimizer):
    totals = torch.zeros(2)
    for x, beats in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), beats)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        totals += torch.tensor([loss.item() * len(x), len(x)])
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()


def main():
    dist.init_process_group("gloo")
    dataset = clips()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = DistributedDataParallel(BeatNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    checkpointer = Checkpointer("beats")
    history = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        history.append({"epoch": epoch, "loss": train_epoch(model, loader, optimizer)})
        info(history[-1])
        checkpointer.save(epoch, model)
    write_history("history.json", history)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
