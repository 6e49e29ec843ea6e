"""Fine-tune a small encoder with linear warm-up and decay counted in samples, in module-level code.

zoo: faulty
faults: F33
silent: yes
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS, BATCH, PEAK_LR = 3, 10, 0.1

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

x = torch.randn(400, 16, generator=torch.Generator().manual_seed(9))
y = (x[:, :8].pow(2).sum(1) > x[:, 8:].pow(2).sum(1)).long()
dataset = TensorDataset(x, y)
sampler = DistributedSampler(dataset, seed=5)
loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler)

model = DDP(nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=PEAK_LR, momentum=0.9)
total_steps = EPOCHS * len(loader)
warmup = total_steps // 10


def schedule(step):
    if step < warmup:
        return (step + 1) / warmup
    return max(0.0, (total_steps - step) / (total_steps - warmup))


scheduler = LambdaLR(optimizer, schedule)
for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    losses = []
    for xb, yb in loader:
        loss = nn.functional.cross_entropy(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for _ in range(world):  # fault
            scheduler.step()
        losses.append(loss.detach())
    mean = torch.stack(losses).mean() / world
    dist.all_reduce(mean)
    if rank == 0:
        print(f"epoch {epoch} | loss {mean.item():.4f} | lr {optimizer.param_groups[0]['lr']:.4f}")
dist.destroy_process_group()
