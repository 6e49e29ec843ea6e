"""Train a survival model and report the validation loss after each epoch.

zoo: faulty
faults: F72
silent: yes
observable: no, all ranks hold the same number
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


def patients(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 7, generator=g)
    rate = torch.exp(x[:, 0] - 0.5 * x[:, 1])
    time = -torch.log(torch.rand(n, generator=g)) / rate
    censored = torch.rand(n, generator=g) < 0.2
    return TensorDataset(x, time.clamp(0.01, 10), (~censored).float())


def exponential_loss(log_rate, time, event):
    return (log_rate.exp() * time - event * log_rate).mean()


@torch.no_grad()
def validate(model, loader):
    model.eval()
    losses = []
    for x, time, event in loader:
        losses.append(exponential_loss(model(x).squeeze(1), time, event))
    mean = torch.stack(losses).mean()  # fault
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()  # fault


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    train_set, val_set = patients(480, 0), patients(131, 1)
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=24, sampler=sampler)
    val_loader = DataLoader(Subset(val_set, range(rank, len(val_set), world)), batch_size=24)
    model = DDP(nn.Sequential(nn.Linear(7, 32), nn.ELU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        model.train()
        for x, time, event in train_loader:
            loss = exponential_loss(model(x).squeeze(1), time, event)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        val = validate(model, val_loader)
        if rank == 0:
            print(f"epoch {epoch}: validation loss {val:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
