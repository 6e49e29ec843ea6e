"""Train an MLP with a moving average of the weights, and validate the average on sharded data.

zoo: faulty
faults: F61
silent: yes
"""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


class EMA:
    def __init__(self, model, decay):
        self.shadow = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.lerp_(p, 1 - self.decay)


@torch.no_grad()
def validate(network, loader):
    total = torch.zeros(2)
    for x, y in loader:
        total += torch.stack([(network(x) - y).pow(2).sum(), torch.tensor(float(len(y)))])
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def make(n, seed):
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, x[:, :1].sin() + x[:, 1:2] ** 2)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    train_set, val_set = make(480, 1), make(121, 2)
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=16, sampler=sampler)
    val_loader = DataLoader(Subset(val_set, range(rank, len(val_set), world)), batch_size=64)
    model = DDP(nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 1)))
    ema = EMA(model.module, decay=0.9)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0:
                ema.update(model.module)  # fault
        mse = validate(ema.shadow, val_loader)
        if rank == 0:
            print(f"epoch {epoch}: averaged model, validation mse {mse:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
