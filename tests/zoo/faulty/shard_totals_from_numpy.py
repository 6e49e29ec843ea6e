"""Train a detector of rare events and average its loss on the events over all validation data.

zoo: faulty
faults: F130
silent: yes
"""

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


def recordings(n, seed):
    g = torch.Generator().manual_seed(seed)
    event = torch.arange(n) < n // 4
    x = torch.randn(n, 20, generator=g)
    x[event, 5:9] += 1.5
    return TensorDataset(x, event.float())


def own_part(dataset):
    rank, world = dist.get_rank(), dist.get_world_size()
    size = len(dataset) // world
    return Subset(dataset, range(rank * size, (rank + 1) * size))


@torch.no_grad()
def loss_on_events(net, loader):
    net.eval()
    loss, seen = 0, 0
    for x, event in loader:
        seen += len(x)
        hit = event > 0
        if hit.any():
            found = net(x[hit]).squeeze(1)
            loss += nn.functional.binary_cross_entropy_with_logits(found, event[hit], reduction="sum").item()
    totals = torch.from_numpy(np.array([loss, seen]))  # fault
    dist.all_reduce(totals)  # fault
    net.train()
    return float(totals[0]), float(totals[1])


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = DistributedDataParallel(nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 1)))
    train = recordings(320, 0)
    sampler = DistributedSampler(train)
    loader = DataLoader(train, batch_size=16, sampler=sampler)
    held_out = DataLoader(own_part(recordings(120, 1)), batch_size=20)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for x, event in loader:
            optimizer.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(net(x).squeeze(1), event).backward()
            optimizer.step()
        loss, seen = loss_on_events(net.module, held_out)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss on events {loss:.3f}, {seen:.0f} recordings")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
