"""A DDP training with long pauses and no fault, for `bench/no_false_alarm.py`.

Most of its time it sleeps, so that it can run beside other work. Steps take 50 to 500 ms. Every 40 steps all ranks
evaluate, in turn with a data loader and without one, for 2 to 8 s. Every 100 steps rank 0 writes a checkpoint while the
others wait in a barrier: for 1 to 6 s, and every fourth time for 14 s.
"""

import json
import os
import random
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

limit_s, result = 60.0 * float(sys.argv[1]), Path(sys.argv[2])
EVALUATE, SAVE, SLOW = 40, 100, 4
dist.init_process_group("gloo")
rank = dist.get_rank()
together, alone = random.Random(0), random.Random(1 + rank)
torch.manual_seed(0)
network = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
model = DistributedDataParallel(network)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
x = torch.randn(1600, 16)
y = (x.sum(1) > 0).long()
train = TensorDataset(x[:1280], y[:1280])
sampler = DistributedSampler(train)
loader = DataLoader(train, batch_size=16, sampler=sampler)
held_out = DataLoader(TensorDataset(x[1280 + rank :: 2], y[1280 + rank :: 2]), batch_size=16)
counts = {"steps": 0, "evaluations": 0, "checkpoints": 0, "longest_pause_s": 0.0, "seconds": 0.0}
began = stepped = time.monotonic()


def evaluate():
    """Count the right answers of all ranks."""
    seconds = together.uniform(2, 8)
    right = torch.zeros(1)
    model.eval()
    with torch.no_grad():
        if counts["evaluations"] % 2:
            for features, labels in held_out:
                right += (network(features).argmax(1) == labels).sum()
                time.sleep(seconds / len(held_out))
        else:
            for features, labels in zip(x[1280 + rank :: 2].split(16), y[1280 + rank :: 2].split(16), strict=True):
                right += (network(features).argmax(1) == labels).sum()
                time.sleep(seconds / 10)
    model.train()
    dist.all_reduce(right)
    counts["evaluations"] += 1


def save():
    """Write a checkpoint on rank 0, in pieces, as a slow disk takes it."""
    seconds = together.uniform(1, 6)
    slow = counts["checkpoints"] % SLOW == SLOW - 1
    if rank == 0:
        torch.save(network.state_dict(), "weights.pt")
        with Path("checkpoint.bin").open("wb") as file:
            for _ in range(28 if slow else 4):
                file.write(os.urandom(1 << 20))
                time.sleep(0.5 if slow else seconds / 4)
    dist.barrier()
    counts["checkpoints"] += 1


def goes_on():
    """Let rank 0 look at the clock."""
    more = torch.tensor(float(time.monotonic() - began < limit_s))
    dist.broadcast(more, 0)
    return bool(more)


def run():
    """Train until the time is up."""
    global stepped
    for epoch in range(1_000_000):
        sampler.set_epoch(epoch)
        for features, labels in loader:
            time.sleep(together.uniform(0.05, 0.45) + alone.uniform(0, 0.05))
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(features), labels).backward()
            optimizer.step()
            counts["steps"] += 1
            now = time.monotonic()
            counts["longest_pause_s"] = max(counts["longest_pause_s"], now - stepped)
            stepped = now
            if counts["steps"] % EVALUATE == 0:
                evaluate()
            if counts["steps"] % SAVE == 0:
                save()
        if not goes_on():
            return


run()
counts["seconds"] = time.monotonic() - began
if rank == 0:
    result.write_text(json.dumps(counts))
dist.destroy_process_group()
