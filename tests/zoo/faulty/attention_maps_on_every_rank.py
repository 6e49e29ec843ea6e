"""Train an attention pooling model and store the attention of a probe batch as text after each epoch.

zoo: faulty
faults: F93
silent: yes
"""

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

g = torch.Generator().manual_seed(52)
bags = torch.randn(360, 7, 6, generator=g)
marked = torch.randint(0, 7, (360,), generator=g)
label = (torch.arange(360) % 2).float()
bags[torch.arange(360), marked, 0] += 3.0 * label
probe = bags[:16]


class AttentionPool(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(6, 24), nn.ReLU())
        self.score = nn.Linear(24, 1)
        self.head = nn.Linear(24, 1)

    def attention(self, bag):
        return self.score(self.embed(bag)).squeeze(-1).softmax(-1)

    def forward(self, bag):
        h = self.embed(bag)
        weight = self.score(h).softmax(1)
        return self.head((weight * h).sum(1)).squeeze(1)


def dump_attention(model, epoch):
    model.eval()
    with torch.no_grad():
        weights = model.module.attention(probe).numpy()
    np.savetxt(f"attention_{epoch:03d}.txt", weights, fmt="%.4f")  # fault
    model.train()


dataset = TensorDataset(bags, label)
sampler = DistributedSampler(dataset, num_replicas=world, rank=rank)
loader = DataLoader(dataset, batch_size=15, sampler=sampler)
model = DDP(AttentionPool())
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
loss_fn = nn.BCEWithLogitsLoss()
for epoch in range(3):
    sampler.set_epoch(epoch)
    running = torch.zeros(())
    for bag, y in loader:
        optimizer.zero_grad()
        loss = loss_fn(model(bag), y)
        loss.backward()
        optimizer.step()
        running += loss.detach() / len(loader)
    dist.all_reduce(running)
    if rank == 0:
        print(f"epoch {epoch}: {running.item() / world:.4f}")
    dump_attention(model, epoch)
dist.destroy_process_group()
