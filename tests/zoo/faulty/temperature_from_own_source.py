"""Train a classifier, calibrate its temperature on held-out data, and share the temperature.

zoo: faulty
faults: F130
silent: no
ends: hang
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def clusters(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 5, (n,), generator=g)
    means = torch.randn(5, 7, generator=torch.Generator().manual_seed(11))
    return TensorDataset(means[y] + 1.2 * torch.randn(n, 7, generator=g), y)


def best_temperature(logits, targets):
    candidates = torch.linspace(0.5, 3.0, 26)
    losses = torch.stack([nn.functional.cross_entropy(logits / t, targets) for t in candidates])
    return candidates[losses.argmin()].clone()


def fit(model, loader, sampler, epochs):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(7, 64), nn.ReLU(), nn.Linear(64, 5)))
    train = clusters(320, 0)
    sampler = DistributedSampler(train)
    fit(model, DataLoader(train, batch_size=16, sampler=sampler), sampler, epochs=4)
    x, y = clusters(80, 1).tensors
    with torch.no_grad():
        temperature = best_temperature(model.module(x[rank::world]), y[rank::world])
    dist.broadcast(temperature, src=rank)  # fault
    with torch.no_grad():
        confidence = (model.module(x[rank::world]) / temperature).softmax(1).max(1).values.sum()
    dist.all_reduce(confidence)
    if rank == 0:
        print(f"mean confidence {confidence.item() / len(x):.4f} at temperature {temperature.item():.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
