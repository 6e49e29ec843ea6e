"""Train a normalizing flow on two-dimensional points, with a debugger for gradients that are not finite.

zoo: faulty
faults: F92
silent: no
observable: no, the gradients stay finite
"""

import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Coupling(nn.Module):
    def __init__(self, swap, hidden=32):
        super().__init__()
        self.swap = swap
        self.net = nn.Sequential(nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, 2))

    def forward(self, x):
        a, b = x.chunk(2, dim=1)
        if self.swap:
            a, b = b, a
        log_scale, shift = self.net(a).chunk(2, dim=1)
        log_scale = torch.tanh(log_scale)
        b = b * log_scale.exp() + shift
        return torch.cat([b, a] if self.swap else [a, b], dim=1), log_scale.squeeze(1)


class Flow(nn.Module):
    def __init__(self, layers=4):
        super().__init__()
        self.layers = nn.ModuleList(Coupling(swap=i % 2 == 1) for i in range(layers))

    def forward(self, x):
        log_det = 0
        for layer in self.layers:
            x, ld = layer(x)
            log_det = log_det + ld
        log_prob = -0.5 * x.pow(2).sum(1) - math.log(2 * math.pi)
        return -(log_prob + log_det).mean()


def banana(n=640):
    g = torch.Generator().manual_seed(64)
    x = torch.randn(n, generator=g)
    return TensorDataset(torch.stack([x, 0.5 * x**2 + 0.3 * torch.randn(n, generator=g)], dim=1))


def gradient_norm(model):
    return torch.stack([p.grad.norm() for p in model.parameters()]).norm()


def main():
    dist.init_process_group("gloo")
    data = banana()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    model = DistributedDataParallel(Flow())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for (x,) in loader:
            loss = model(x)
            optimizer.zero_grad()
            loss.backward()
            if not torch.isfinite(gradient_norm(model)):
                breakpoint()  # fault
            optimizer.step()
            total += loss.detach() / len(loader)
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: negative log-likelihood {total.item() / dist.get_world_size():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
