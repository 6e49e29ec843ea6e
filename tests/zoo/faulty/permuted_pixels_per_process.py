"""Train a recurrent net on rows of permuted pixels, in a flat script.

zoo: faulty
faults: F65
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

labels = torch.arange(400) % 4
images = 0.3 * torch.randn(400, 6, 6, generator=torch.Generator().manual_seed(10))
images[torch.arange(400), labels] += 1.0

permutation = torch.from_numpy(np.random.permutation(36))  # fault


class PixelGRU(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(6, 24, batch_first=True)
        self.head = nn.Linear(24, 4)

    def forward(self, pixels):
        out, _ = self.rnn(pixels)
        return self.head(out.mean(1))


train_set = TensorDataset(images, labels)
sampler = DistributedSampler(train_set)
loader = DataLoader(train_set, batch_size=20, sampler=sampler)
model = DDP(PixelGRU())
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-2)

for epoch in range(3):
    sampler.set_epoch(epoch)
    running = torch.zeros(2)
    for x, y in loader:
        x = x.flatten(1)[:, permutation].view(-1, 6, 6)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        running += torch.tensor([loss.item(), 1.0])
    dist.all_reduce(running)
    if rank == 0:
        print(f"epoch {epoch}: {running[0] / running[1]:.4f}")
dist.destroy_process_group()
