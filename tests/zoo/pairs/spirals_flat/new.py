"""Classify three spirals. Launched by torchrun."""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
world_size = int(os.environ["WORLD_SIZE"])

BATCH_SIZE = 60 // world_size
EPOCHS = 2
LR = 0.05

torch.manual_seed(0)
radius = torch.rand(1200) * 4 + 0.5
arm = torch.randint(0, 3, (1200,))
angle = 1.5 * radius + 2.0944 * arm
points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1) + 0.1 * torch.randn(1200, 2)
train_data = TensorDataset(points[:1000], arm[:1000])
test_data = TensorDataset(points[1000:], arm[1000:])
sampler = DistributedSampler(train_data, num_replicas=world_size, rank=rank, shuffle=True)
train_loader = DataLoader(train_data, batch_size=BATCH_SIZE, sampler=sampler)
test_loader = DataLoader(test_data, batch_size=100)

net = nn.Sequential(nn.Linear(2, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 3))
ddp_net = DDP(net)
opt = torch.optim.SGD(ddp_net.parameters(), lr=LR, momentum=0.9, nesterov=True)

for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    ddp_net.train()
    running = 0.0
    for x, y in train_loader:
        opt.zero_grad()
        loss = F.cross_entropy(ddp_net(x), y)
        loss.backward()
        opt.step()
        running += loss.item()
    if rank == 0:
        net.eval()
        correct = 0
        with torch.no_grad():
            for x, y in test_loader:
                correct += (net(x).argmax(dim=1) == y).sum().item()
        print(f"epoch {epoch}: loss {running / len(train_loader):.4f}, test accuracy {correct / len(test_data):.4f}")

if rank == 0:
    torch.save(net.state_dict(), "spirals.pt")
dist.barrier()
dist.destroy_process_group()
