"""Train until the loss is small or the time is up; the ranks agree on both before they leave the loop.

zoo: correct
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-epochs", type=int, default=4)
    parser.add_argument("--target", type=float, default=0.02)
    parser.add_argument("--max-seconds", type=float, default=300.0)
    return parser.parse_args()


def pendulum(n=480):
    g = torch.Generator().manual_seed(24)
    state = torch.randn(n, 2, generator=g)
    return TensorDataset(state, torch.stack([state[:, 1], -torch.sin(state[:, 0])], dim=1))


class Agreement:
    """A flag that counts as soon as it is set on one rank."""

    def __init__(self):
        self.flag = torch.zeros(1)

    def __call__(self, value):
        self.flag.fill_(float(value))
        dist.all_reduce(self.flag, op=dist.ReduceOp.MAX)
        return self.flag.item() > 0


def main():
    args = parse()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dataset = pendulum()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    any_rank = Agreement()
    began = last_print = time.monotonic()
    step = 0
    for epoch in range(args.max_epochs):
        sampler.set_epoch(epoch)
        running = 0.0
        for state, change in loader:
            loss = nn.functional.mse_loss(model(state), change)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.item() / len(loader)
            step += 1
            if rank == 0 and time.monotonic() - last_print > 0.5:
                last_print = time.monotonic()
                print(f"step {step}: {loss.item():.4f}")
            if any_rank(not torch.isfinite(loss)):
                raise FloatingPointError("the loss is not finite")
        stop = running < args.target or time.monotonic() - began > args.max_seconds
        if any_rank(stop):
            break
    if rank == 0:
        print(f"{epoch + 1} epochs, last loss {running:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
