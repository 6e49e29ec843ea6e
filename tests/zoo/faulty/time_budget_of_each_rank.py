"""Train a classifier for a given time instead of a given number of epochs.

zoo: faulty
faults: F85
silent: no
ends: crash
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BUDGET_S = 1.5


def load_centers():
    time.sleep(0.4)
    return 2.0 * torch.eye(3, 12)


def sample(centers, generator, n=32):
    y = torch.randint(0, 3, (n,), generator=generator)
    return torch.randn(n, 12, generator=generator) + centers[y], y


def main():
    dist.init_process_group("gloo")
    generator = torch.Generator().manual_seed(dist.get_rank())
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(12, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    centers = load_centers() if dist.get_rank() == 0 else torch.zeros(3, 12)
    started, steps = time.monotonic(), 0
    dist.broadcast(centers, src=0)
    while time.monotonic() - started < BUDGET_S:  # fault
        x, y = sample(centers, generator)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        time.sleep(0.02)
    seen = torch.tensor([steps * 32])
    dist.all_reduce(seen)
    if dist.get_rank() == 0:
        print(f"{int(seen)} samples in {BUDGET_S} s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
