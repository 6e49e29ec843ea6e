"""Fit the peaks of spectra with a small network and LBFGS, in plain functions.

zoo: faulty
faults: F36
silent: yes
observable: no, the stop tests on the ranks happen to agree
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


def spectra(n=256, channels=40):
    g = torch.Generator().manual_seed(17)
    position = torch.rand(n, 1, generator=g)
    width = 0.05 + 0.1 * torch.rand(n, 1, generator=g)
    axis = torch.linspace(0, 1, channels)
    curves = torch.exp(-((axis - position) ** 2) / (2 * width**2)) + 0.02 * torch.randn(n, channels, generator=g)
    return curves, torch.cat([position, width], dim=1)


def build_network():
    return nn.Sequential(nn.Linear(40, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 2))


def fit(model, curves, target, rounds=8):
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=5, history_size=10)
    for number in range(rounds):

        def closure():
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(curves), target)
            loss.backward()
            return loss  # fault

        loss = optimizer.step(closure)
        yield number, loss.detach()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    curves, target = spectra()
    model = DDP(build_network())
    for number, loss in fit(model, curves[rank::world], target[rank::world]):
        dist.all_reduce(loss)
        if rank == 0:
            print(f"round {number}: mse {loss.item() / world:.6f}")
    if rank == 0:
        torch.save(model.module.state_dict(), "peaks.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
