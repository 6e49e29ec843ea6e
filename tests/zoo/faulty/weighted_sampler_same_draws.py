"""Train a fraud detector with class balancing by WeightedRandomSampler, in plain functions.

zoo: faulty
faults: F02, F10
silent: yes
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler


def transactions(n=640, fraud_rate=0.1):
    g = torch.Generator().manual_seed(90)
    fraud = (torch.rand(n, generator=g) < fraud_rate).long()
    amount = torch.randn(n, 9, generator=g) + 1.2 * fraud.unsqueeze(1)
    return amount, fraud


def balanced_sampler(labels, seed):
    counts = torch.bincount(labels)
    weights = 1.0 / counts[labels].double()
    generator = torch.Generator().manual_seed(seed)
    return WeightedRandomSampler(
        weights, num_samples=len(labels) // dist.get_world_size(), generator=generator
    )  # fault


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    x, y = transactions()
    loader = DataLoader(TensorDataset(x, y), batch_size=16, sampler=balanced_sampler(y, seed=7))
    model = DDP(nn.Sequential(nn.Linear(9, 24), nn.ReLU(), nn.Linear(24, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(3):
        total = torch.zeros(2)
        for xb, yb in loader:
            loss = nn.functional.cross_entropy(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {total[0] / total[1]:.4f} on {world} ranks")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
