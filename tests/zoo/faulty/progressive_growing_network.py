"""Train a residual MLP that grows by one block an epoch, in module-level code.

zoo: faulty
faults: F43, F41
silent: yes
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)


class Growing(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.width = width
        self.stem = nn.Linear(6, width)
        self.blocks = nn.ModuleList([self.block()])
        self.out = nn.Linear(width, 1)

    def block(self):
        return nn.Sequential(nn.Linear(self.width, self.width), nn.Tanh())

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.out(x)


x = torch.randn(480, 6, generator=torch.Generator().manual_seed(13))
y = (x.sin().prod(1, keepdim=True) * 4).tanh() + x[:, :1]
dataset = TensorDataset(x, y)
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=16, sampler=sampler)
model = DDP(Growing())
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for epoch in range(3):
    if epoch > 0:
        block = model.module.block()
        model.module.blocks.append(block)  # fault
        optimizer.add_param_group({"params": block.parameters()})
    sampler.set_epoch(epoch)
    total = torch.zeros(())
    for xb, yb in loader:
        loss = nn.functional.mse_loss(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    dist.all_reduce(total)
    if rank == 0:
        print(f"{len(model.module.blocks)} blocks: mse {total.item() / len(loader) / world:.4f}")
dist.destroy_process_group()
