"""Train a classifier and validate on 101 samples with a distributed sampler, in plain functions.

zoo: faulty
faults: F70
silent: yes
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def split(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 6, generator=g)
    return TensorDataset(x, (x[:, 0] + x[:, 1] > x[:, 2] + x[:, 3]).long())


def loaders(batch_size):
    train, val = split(480, 0), split(101, 1)
    train_sampler = DistributedSampler(train, shuffle=True)
    val_sampler = DistributedSampler(val, shuffle=False)  # fault
    return (
        DataLoader(train, batch_size=batch_size, sampler=train_sampler),
        DataLoader(val, batch_size=batch_size, sampler=val_sampler),
    )


def evaluate(model, loader):
    model.eval()
    correct, count = torch.tensor(0), torch.tensor(0)
    with torch.no_grad():
        for x, y in loader:
            correct += (model(x).argmax(1) == y).sum()
            count += len(y)
    dist.all_reduce(correct)
    dist.all_reduce(count)
    return correct.item() / count.item(), count.item()


def main():
    dist.init_process_group("gloo")
    train_loader, val_loader = loaders(16)
    model = DDP(nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        model.train()
        train_loader.sampler.set_epoch(epoch)
        for x, y in train_loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        accuracy, count = evaluate(model, val_loader)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: accuracy {accuracy:.4f} on {count} samples")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
