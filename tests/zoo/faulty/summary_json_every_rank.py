"""Train a linear probe and write a summary of the run, in module-level code.

zoo: faulty
faults: F93
silent: yes
"""

import json
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
started = time.time()

g = torch.Generator().manual_seed(50)
features = torch.randn(480, 32, generator=g)
labels = (features @ torch.randn(32, 5, generator=g)).argmax(1)
dataset = TensorDataset(features, labels)
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=24, sampler=sampler)

probe = DDP(nn.Linear(32, 5))
optimizer = torch.optim.SGD(probe.parameters(), lr=0.5)
history = []
for epoch in range(3):
    sampler.set_epoch(epoch)
    sums = torch.zeros(3)
    for x, y in loader:
        logits = probe(x)
        loss = nn.functional.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sums += torch.tensor([loss.item() * len(y), (logits.argmax(1) == y).sum().item(), len(y)])
    dist.all_reduce(sums)
    history.append({"epoch": epoch, "loss": (sums[0] / sums[2]).item(), "accuracy": (sums[1] / sums[2]).item()})
    if rank == 0:
        print(history[-1])

summary = {"history": history, "world_size": world, "seconds": round(time.time() - started, 2)}
Path("summary.json").write_text(json.dumps(summary, indent=2))  # fault
dist.destroy_process_group()
