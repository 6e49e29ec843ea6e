"""Fit a logistic regression by full-batch gradient descent; the sampler does not shuffle.

zoo: correct
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

g = torch.Generator().manual_seed(2)
x = torch.randn(600, 12, generator=g)
y = (x @ torch.randn(12, generator=g) + 0.3 * torch.randn(600, generator=g) > 0).float()
dataset = TensorDataset(x, y)
sampler = DistributedSampler(dataset, num_replicas=world, rank=rank, shuffle=False)
loader = DataLoader(dataset, batch_size=len(sampler), sampler=sampler)

model = DDP(nn.Linear(12, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
criterion = nn.BCEWithLogitsLoss()
for epoch in range(40):
    for features, target in loader:
        optimizer.zero_grad()
        loss = criterion(model(features).squeeze(1), target)
        loss.backward()
        optimizer.step()
    if epoch % 10 == 9:
        mean = loss.detach() / world
        dist.all_reduce(mean)
        if rank == 0:
            print(f"iteration {epoch + 1}: loss {mean.item():.4f}")
dist.destroy_process_group()
