"""Train an MLP and validate it on the whole validation set on each rank, so that all hold the same number.

zoo: correct
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Moons(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.y = torch.arange(n) % 2
        angle = torch.pi * torch.rand(n, generator=g)
        sign = 1 - 2 * self.y
        self.x = torch.stack([sign * angle.cos() + self.y, sign * angle.sin() + 0.5 * self.y], dim=1)
        self.x += 0.15 * torch.randn(n, 2, generator=g)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


@torch.no_grad()
def accuracy(network, loader):
    network.eval()
    hits = sum((network(x).argmax(1) == y).sum().item() for x, y in loader)
    network.train()
    return hits / len(loader.dataset)


def main(max_epochs=5, target=0.97):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(7)
    train_set, val_set = Moons(480, 0), Moons(75, 1)
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=16, sampler=sampler)
    val_loader = DataLoader(val_set, batch_size=25, shuffle=False)
    model = DDP(nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", patience=0)
    for epoch in range(max_epochs):
        sampler.set_epoch(epoch)
        for x, y in train_loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        score = accuracy(model.module, val_loader)
        scheduler.step(score)
        if rank == 0:
            print(f"epoch {epoch}: validation accuracy {score:.4f}")
        if score >= target:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
