"""Train a fraud detector with class balancing: one weighted draw for all ranks, then a slice for each.

zoo: correct
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Sampler, TensorDataset


class DistributedWeightedSampler(Sampler):
    def __init__(self, weights, num_samples, seed=0):
        self.weights, self.seed, self.epoch = weights, seed, 0
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.total = num_samples // self.world * self.world

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.total // self.world

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        drawn = torch.multinomial(self.weights, self.total, replacement=True, generator=g)
        return iter(drawn[self.rank :: self.world].tolist())


def transactions(n=640, fraud_rate=0.1):
    g = torch.Generator().manual_seed(90)
    fraud = (torch.rand(n, generator=g) < fraud_rate).long()
    return torch.randn(n, 9, generator=g) + 1.2 * fraud.unsqueeze(1), fraud


def main():
    dist.init_process_group("gloo")
    x, y = transactions()
    weights = 1.0 / torch.bincount(y)[y].double()
    sampler = DistributedWeightedSampler(weights, len(y), seed=7)
    loader = DataLoader(TensorDataset(x, y), batch_size=16, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(9, 24), nn.ReLU(), nn.Linear(24, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros(3)
        for xb, yb in loader:
            loss = nn.functional.cross_entropy(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item() * len(yb), yb.sum().item(), len(yb)])
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {total[0] / total[2]:.4f}, share of fraud {total[1] / total[2]:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
