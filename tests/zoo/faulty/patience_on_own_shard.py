"""Train an autoencoder with early stopping on the validation loss.

zoo: faulty
faults: F81
silent: no
ends: crash
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.bad = patience, float("inf"), 0

    def should_stop(self, value):
        self.bad = 0 if value < self.best else self.bad + 1
        self.best = min(self.best, value)
        return self.bad >= self.patience


def signals(n, seed):
    g = torch.Generator().manual_seed(seed)
    phase = torch.rand(n, 1, generator=g) * 6.28
    return torch.sin(torch.linspace(0, 6.28, 32) + phase) + 0.3 * torch.randn(n, 32, generator=g)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(5)
    net = DistributedDataParallel(nn.Sequential(nn.Linear(32, 4), nn.Tanh(), nn.Linear(4, 32)))
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-2)
    train = TensorDataset(signals(256, 0))
    sampler = DistributedSampler(train, seed=1)
    loader = DataLoader(train, batch_size=32, sampler=sampler)
    validation = signals(64, 1)[rank::world]
    stopping = EarlyStopping(patience=2)
    for epoch in range(60):
        sampler.set_epoch(epoch)
        for (x,) in loader:
            loss = nn.functional.mse_loss(net(x), x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            value = nn.functional.mse_loss(net.module(validation), validation).item()
        if stopping.should_stop(value):  # fault
            break
    if rank == 0:
        print(f"stopped after {epoch + 1} epochs, best {stopping.best:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
