"""Sample the weights of a small regression network with stochastic gradient Langevin dynamics.

zoo: faulty
faults: F36, F65
silent: yes
"""

import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class SGLD(torch.optim.Optimizer):
    def __init__(self, params, lr, temperature):
        super().__init__(params, {"lr": lr, "temperature": temperature})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            spread = math.sqrt(2 * group["lr"] * group["temperature"])
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"])
                p.add_(torch.randn_like(p), alpha=spread)  # fault


def wave(n=400):
    g = torch.Generator().manual_seed(6)
    x = 6 * torch.rand(n, 1, generator=g) - 3
    return TensorDataset(x, torch.sin(2 * x) + 0.1 * torch.randn(n, 1, generator=g))


def main(epochs=3, burn_in=1):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(2 + rank)
    data = wave()
    sampler = DistributedSampler(data, seed=8)
    loader = DataLoader(data, batch_size=20, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = SGLD(model.parameters(), lr=0.02, temperature=1e-4)
    grid = torch.linspace(-3, 3, 25).unsqueeze(1)
    samples = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch >= burn_in:
            with torch.no_grad():
                samples.append(model.module(grid))
    if rank == 0:
        spread = torch.stack(samples).std(0).mean()
        print(f"{len(samples)} samples, mean spread {spread.item():.4f}, last loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
