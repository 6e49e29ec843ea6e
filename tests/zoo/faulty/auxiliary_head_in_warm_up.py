"""Train a classifier with an auxiliary head that helps in the first epoch, in plain functions.

zoo: faulty
faults: F48
silent: no
ends: crash
"""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class DeeplySupervised(nn.Module):
    def __init__(self, features=16, classes=5):
        super().__init__()
        self.early = nn.Sequential(nn.Linear(features, 48), nn.ReLU())
        self.late = nn.Sequential(nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU())
        self.aux = nn.Linear(48, classes)
        self.head = nn.Linear(48, classes)

    def forward(self, x, with_aux):
        h = self.early(x)
        main = self.head(self.late(h))
        return (main, self.aux(h)) if with_aux else (main, None)


def samples(n=480):
    g = torch.Generator().manual_seed(10)
    x = torch.randn(n, 16, generator=g)
    return TensorDataset(x, (x @ torch.randn(16, 5, generator=g)).argmax(1))


def compute_loss(main, aux, y):
    loss = F.cross_entropy(main, y)
    if aux is not None:
        loss = loss + 0.4 * F.cross_entropy(aux, y)
    return loss


def train(model, loader, optimizer, epoch, warm_up):
    for x, y in loader:
        main, aux = model(x, with_aux=epoch < warm_up)
        optimizer.zero_grad()
        loss = compute_loss(main, aux, y)
        loss.backward()
        optimizer.step()
    return loss.detach()


def main():
    dist.init_process_group("gloo")
    dataset = samples()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = DDP(DeeplySupervised())  # fault
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        loss = train(model, loader, optimizer, epoch, warm_up=1)
        dist.all_reduce(loss)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item() / dist.get_world_size():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
