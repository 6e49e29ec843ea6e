"""Train a tide forecaster with ranks from the environment, in module-level code.

zoo: faulty
faults: F108, F128
silent: yes
observable: no, torchrun sets the variables
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

rank = int(os.environ.get("RANK", 0))  # fault
local_rank = int(os.environ.get("LOCAL_RANK", 0))
world_size = int(os.environ.get("WORLD_SIZE", 1))  # fault
os.environ.setdefault("MASTER_ADDR", "localhost")
os.environ.setdefault("MASTER_PORT", "29511")
if torch.cuda.is_available():
    torch.cuda.set_device(local_rank)
device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
dist.init_process_group("nccl" if device.type == "cuda" else "gloo", rank=rank, world_size=world_size)

HISTORY, AHEAD, BATCH = 24, 6, 32
t = torch.arange(700, dtype=torch.float32)
level = torch.sin(t * 6.2832 / 12.42) + 0.4 * torch.sin(t * 6.2832 / 24) + 0.2 * torch.sin(t * 6.2832 / 327)
windows = level.unfold(0, HISTORY + AHEAD, 1)[:640]
dataset = TensorDataset(windows[:, :HISTORY], windows[:, HISTORY:])
sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank, shuffle=True)
loader = DataLoader(dataset, batch_size=BATCH // world_size, sampler=sampler)

model = nn.Sequential(nn.Linear(HISTORY, 64), nn.Tanh(), nn.Linear(64, AHEAD)).to(device)
model = DDP(model, device_ids=[local_rank] if device.type == "cuda" else None)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for epoch in range(3):
    sampler.set_epoch(epoch)
    error = torch.zeros(2, device=device)
    for history, ahead in loader:
        history, ahead = history.to(device), ahead.to(device)
        loss = nn.functional.mse_loss(model(history), ahead)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        error += torch.tensor([loss.item() * len(history), len(history)], device=device)
    dist.all_reduce(error)
    if rank == 0:
        print(f"epoch {epoch}: mse {error[0] / error[1]:.5f}")
        torch.save(model.module.state_dict(), "tides.pt")
dist.destroy_process_group()
