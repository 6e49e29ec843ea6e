"""Train a classifier and log to TensorBoard, in module-level code.

zoo: faulty
faults: F101
silent: yes
needs: tensorboard
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torch.utils.tensorboard import SummaryWriter

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
writer = SummaryWriter("tb")  # fault

g = torch.Generator().manual_seed(29)
x = torch.randn(400, 10, generator=g)
y = (x.pow(2).sum(1) > 9).long()
dataset = TensorDataset(x, y)
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=20, sampler=sampler)
model = DDP(nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 2)))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

for epoch in range(3):
    sampler.set_epoch(epoch)
    total = torch.zeros(2)
    for xb, yb in loader:
        loss = nn.functional.cross_entropy(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += torch.tensor([loss.item(), 1.0])
    dist.all_reduce(total)
    mean = (total[0] / total[1]).item()
    writer.add_scalar("train/loss", mean, epoch)
    if rank == 0:
        print(f"epoch {epoch} loss {mean:.4f}")
writer.close()
dist.destroy_process_group()
