"""Train a classifier with stochastic weight averaging and batch norm statistics for the average.

zoo: faulty
faults: F62
silent: yes
observable: no, the average is no part of a training step
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(14, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))
        self.head = nn.Sequential(nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, x):
        return self.head(self.body(x))


def measurements(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 4, (n,), generator=g)
    centers = torch.randn(4, 14, generator=torch.Generator().manual_seed(0)) * 2
    return TensorDataset(centers[y] + 2 * torch.randn(n, 14, generator=g), y)


@torch.no_grad()
def accuracy(network, loader):
    network.eval()
    counts = torch.zeros(2)
    for x, y in loader:
        counts += torch.tensor([(network(x).argmax(1) == y).sum().item(), len(y)])
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def main(epochs=6, swa_start=3):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    train_set, val_set = measurements(640, 1), measurements(201, 2)
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=32, sampler=sampler)
    val_loader = DataLoader(Subset(val_set, range(rank, len(val_set), world)), batch_size=50)
    model = DDP(Net())
    swa_model = AveragedModel(model.module)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    swa_scheduler = SWALR(optimizer, swa_lr=0.02, anneal_epochs=1)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        if epoch >= swa_start:
            swa_model.update_parameters(model.module)
            swa_scheduler.step()
    update_bn(loader, swa_model)  # fault
    score = accuracy(swa_model, val_loader)
    if rank == 0:
        print(f"averaged model: accuracy {score:.4f}")
        torch.save(swa_model.module.state_dict(), "swa.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
