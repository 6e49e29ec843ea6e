"""Train and test a document classifier with average meters, in the manner of the older reference scripts.

zoo: faulty
faults: F72
silent: yes
observable: no, all ranks hold the same number
"""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.optim
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class AverageMeter:
    """Computes and stores the average and current value."""

    def __init__(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


class Documents(Dataset):
    def __init__(self, n, seed, words=120):
        g = torch.Generator().manual_seed(seed)
        self.label = torch.randint(0, 4, (n,), generator=g)
        topical = self.label[:, None] * 30 + torch.randint(0, 30, (n, 6), generator=g)
        self.words = torch.cat([topical, torch.randint(0, words, (n, 14), generator=g)], dim=1)

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        return self.words[i], self.label[i]


class Shard(Dataset):
    """A contiguous part for each rank; the last rank takes the rest."""

    def __init__(self, dataset, rank, world):
        size = len(dataset) // world
        stop = len(dataset) if rank == world - 1 else (rank + 1) * size
        self.dataset, self.index = dataset, range(rank * size, stop)

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        return self.dataset[self.index[i]]


def reduce_mean(value, world):
    tensor = torch.tensor(value)
    dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
    return tensor.item() / world


def train(loader, model, criterion, optimizer):
    model.train()
    for words, label in loader:
        loss = criterion(model(words), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def validate(loader, model, world):
    top1 = AverageMeter()
    model.eval()
    with torch.no_grad():
        for words, label in loader:
            prediction = model.module(words).argmax(1)
            top1.update((prediction == label).float().mean().item() * 100, len(label))
    return reduce_mean(top1.avg, world)  # fault


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    train_set, test_set = Documents(480, 0), Documents(157, 1)
    train_sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=20, sampler=train_sampler)
    test_loader = DataLoader(Shard(test_set, rank, world), batch_size=20)
    model = DistributedDataParallel(nn.Sequential(nn.EmbeddingBag(120, 24), nn.ReLU(), nn.Linear(24, 4)))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        train_sampler.set_epoch(epoch)
        train(train_loader, model, criterion, optimizer)
        acc1 = validate(test_loader, model, world)
        if rank == 0:
            print(f" * Acc@1 {acc1:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
