"""Train a convnet with plain batch normalization on large batches; rank 0 shares its statistics before validation.

zoo: correct
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


def images(n, seed):
    y = torch.arange(n) % 5
    x = torch.randn(n, 1, 6, 6, generator=torch.Generator().manual_seed(seed))
    x[torch.arange(n), 0, y] += 1.5
    return TensorDataset(x, y)


def build():
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12), nn.ReLU(), nn.Flatten(), nn.Linear(432, 5)
    )


@torch.no_grad()
def validate(model, loader):
    for buffer in model.module.buffers():
        dist.broadcast(buffer, src=0)
    model.eval()
    counts = torch.zeros(2)
    for x, y in loader:
        counts += torch.tensor([(model.module(x).argmax(1) == y).sum().item(), len(y)])
    dist.all_reduce(counts)
    return counts.tolist()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    train_set, val_set = images(1280, 0), images(203, 1)
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=64, sampler=sampler)
    val_loader = DataLoader(Subset(val_set, range(rank, len(val_set), world)), batch_size=64)
    model = DDP(build())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        correct, count = validate(model, val_loader)
        if rank == 0:
            print(f"epoch {epoch}: accuracy {correct / count:.4f} ({count:.0f} images)")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
