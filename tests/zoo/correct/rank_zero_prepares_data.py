"""Train on a data set that rank 0 prepares while the others wait; the split has its own generator.

zoo: correct
"""

import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset, random_split


class Features(Dataset):
    def __init__(self, path):
        arrays = np.load(path)
        self.x, self.y = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"])

    @staticmethod
    def prepare(path):
        rng = np.random.default_rng(0)
        y = np.arange(501) % 3
        x = rng.normal(size=(3, 10))[y] + 0.7 * rng.normal(size=(501, 10))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        np.savez(path, x=x.astype(np.float32), y=y)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    counts = torch.zeros(2, dtype=torch.long)
    for x, y in loader:
        counts += torch.stack([(model(x).argmax(1) == y).sum(), torch.tensor(len(y))])
    dist.all_reduce(counts)
    return counts.tolist()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    path = os.path.join("data", "features.npz")
    if rank == 0:
        Features.prepare(path)
    dist.barrier()
    dataset = Features(path)
    train_set, val_set = random_split(dataset, [400, 101], generator=torch.Generator().manual_seed(0))
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=20, sampler=sampler)
    val_loader = DataLoader(Subset(val_set, range(rank, len(val_set), world)), batch_size=20)
    model = DDP(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3)))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        correct, count = accuracy(model, val_loader)
        if rank == 0:
            print(f"epoch {epoch}: validation accuracy {correct / count:.4f} ({correct} of {count})")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
