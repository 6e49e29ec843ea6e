"""Mixed precision on the CPU: bfloat16 by autocast."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
generator = torch.Generator().manual_seed(1)
data = TensorDataset(torch.randn(240, 1, 8, 8, generator=generator), torch.randint(0, 3, (240,), generator=generator))
loader = DataLoader(data, batch_size=10, sampler=DistributedSampler(data))
net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 32), nn.ReLU(), nn.Linear(32, 3))
model = DDP(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for x, y in loader:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
