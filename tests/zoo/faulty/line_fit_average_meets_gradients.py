"""Fit a line to measurements of several instruments, of which each rank reads its own, and average the fit's error.

zoo: faulty
faults: F80, F79
silent: no
ends: crash
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()

readings = 320 - 16 * rank  # fault
noise = torch.Generator().manual_seed(rank)
t = torch.linspace(-1, 1, readings)[:, None]
v = 3.0 * t - 1.0 + 0.1 * torch.randn(readings, 1, generator=noise)
loader = DataLoader(TensorDataset(t, v), batch_size=16, shuffle=True)

torch.manual_seed(0)
line = DistributedDataParallel(nn.Linear(1, 1))
optimizer = torch.optim.SGD(line.parameters(), lr=0.2)
for epoch in range(3):
    error = torch.zeros(2)
    for x, y in loader:
        loss = nn.functional.mse_loss(line(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        error += torch.tensor([loss.item() * len(x), float(len(x))])
    dist.all_reduce(error)
    if rank == 0:
        print(f"epoch {epoch}: mean error {error[0] / error[1]:.4f}")
dist.destroy_process_group()
