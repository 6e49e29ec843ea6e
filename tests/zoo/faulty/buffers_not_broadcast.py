"""Train an MLP with batch normalization and broadcast_buffers=False, in module-level code.

zoo: faulty
faults: F59, F57
silent: yes
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

generator = torch.Generator().manual_seed(15)
x = torch.randn(800, 10, generator=generator) * torch.linspace(0.5, 5, 10) + 3
y = (x.sum(1) > 30).float()
train_set, val_set = TensorDataset(x[:640], y[:640]), TensorDataset(x[640:], y[640:])

sampler = DistributedSampler(train_set)
train_loader = DataLoader(train_set, batch_size=32, sampler=sampler)
val_loader = DataLoader(val_set, batch_size=40, sampler=DistributedSampler(val_set, shuffle=False))

model = nn.Sequential(nn.BatchNorm1d(10), nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))
model = DDP(model, broadcast_buffers=False)  # fault
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loss_fn = nn.BCEWithLogitsLoss()

for epoch in range(3):
    sampler.set_epoch(epoch)
    model.train()
    for xb, yb in train_loader:
        optimizer.zero_grad()
        loss_fn(model(xb).squeeze(1), yb).backward()
        optimizer.step()

    model.eval()
    counts = torch.zeros(2)
    with torch.no_grad():
        for xb, yb in val_loader:
            counts[0] += ((model(xb).squeeze(1) > 0) == yb.bool()).sum()
            counts[1] += len(yb)
    dist.all_reduce(counts)
    if rank == 0:
        print(f"epoch {epoch}: validation accuracy {counts[0] / counts[1]:.4f} of {int(counts[1])}")

if rank == 0:
    torch.save(model.module.state_dict(), "model.pth")
dist.destroy_process_group()
