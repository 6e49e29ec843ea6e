"""Train in two stages; the second stage starts from the best checkpoint of the first.

zoo: faulty
faults: F94
silent: yes
"""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

BEST = "best.pt"


def make(n, seed):
    x = torch.randn(n, 8, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, x[:, :4].sum(1, keepdim=True).tanh())


def train_epoch(model, loader, optimizer, epoch):
    loader.sampler.set_epoch(epoch)
    model.train()
    total = torch.zeros(())
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach() / len(loader)
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


@torch.no_grad()
def validate(network, dataset):
    network.eval()
    losses = [nn.functional.mse_loss(network(x), y) for x, y in DataLoader(dataset, batch_size=1)]
    return torch.stack(losses).mean().item()


def save(network, path):
    torch.save(network.state_dict(), path + ".tmp")
    os.replace(path + ".tmp", path)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    train_set, val_set = make(320, 0), make(600, 1)
    loader = DataLoader(train_set, batch_size=16, sampler=DistributedSampler(train_set))
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    best = float("inf")
    for epoch in range(3):
        loss = train_epoch(model, loader, optimizer, epoch)
        if rank == 0:
            val = validate(model.module, val_set)
            if val < best:
                best = val
                save(model.module, BEST)
            print(f"stage 1 epoch {epoch}: loss {loss:.4f} val {val:.4f}")

    model.module.load_state_dict(torch.load(BEST, map_location="cpu"))  # fault
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for epoch in range(3, 5):
        loss = train_epoch(model, loader, optimizer, epoch)
        if rank == 0:
            print(f"stage 2 epoch {epoch}: loss {loss:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
