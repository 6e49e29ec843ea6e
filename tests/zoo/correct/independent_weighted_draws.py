"""Train a rare-event detector; each rank draws its own share with replacement, from a generator of its own.

zoo: correct
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler


class Events(Dataset):
    def __init__(self, n=640, rate=0.08):
        g = torch.Generator().manual_seed(17)
        self.event = (torch.rand(n, generator=g) < rate).long()
        self.trace = torch.randn(n, 24, generator=g)
        self.trace[self.event == 1, 8:12] += 2.0

    def __len__(self):
        return len(self.event)

    def __getitem__(self, i):
        return self.trace[i], self.event[i]


def balanced(dataset, rank, world, seed=100):
    """Draws with replacement are independent, so that each rank may make its own."""
    weight = (1.0 / torch.bincount(dataset.event).double())[dataset.event]
    generator = torch.Generator().manual_seed(seed + rank)
    return WeightedRandomSampler(weight, num_samples=len(dataset) // world, replacement=True, generator=generator)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    dataset = Events()
    loader = DataLoader(dataset, batch_size=16, sampler=balanced(dataset, rank, world))
    model = DDP(nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(3):
        totals = torch.zeros(3)
        for trace, event in loader:
            loss = nn.functional.cross_entropy(model(trace), event)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            totals += torch.tensor([loss.item() * len(event), event.sum().item(), len(event)])
        dist.all_reduce(totals)
        if rank == 0:
            print(f"epoch {epoch}: loss {totals[0] / totals[2]:.4f}, share of events {totals[1] / totals[2]:.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
