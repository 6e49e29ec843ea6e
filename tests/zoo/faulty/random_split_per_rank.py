"""Train and validate a classifier on a random split, with per-rank seeds for the augmentation.

zoo: faulty
faults: F65
silent: yes
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split


def full_dataset(n=500):
    g = torch.Generator().manual_seed(44)
    y = torch.randint(0, 4, (n,), generator=g)
    x = torch.randn(4, 20, generator=g)[y] + torch.randn(n, 20, generator=g)
    return TensorDataset(x, y)


def jitter(x):
    return x + 0.1 * torch.randn_like(x)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    hits = torch.zeros(2)
    for x, y in loader:
        hits += torch.tensor([(model(x).argmax(1) == y).sum().item(), len(y)])
    dist.all_reduce(hits)
    return hits


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(100 + rank)

    train_set, val_set = random_split(full_dataset(), [400, 100])  # fault
    train_sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=20, sampler=train_sampler)
    val_loader = DataLoader(val_set, batch_size=25, sampler=DistributedSampler(val_set, shuffle=False))

    model = DDP(nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 4)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for epoch in range(3):
        train_sampler.set_epoch(epoch)
        model.train()
        for x, y in train_loader:
            loss = F.cross_entropy(model(jitter(x)), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        correct, count = validate(model, val_loader).tolist()
        if rank == 0:
            print(f"epoch {epoch}: validation accuracy {correct / count:.3f} ({count:.0f} samples)")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
