"""Train a softmax regression on 241 samples with Adam, in module-level code.

zoo: faulty
faults: F18
silent: yes
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")

g = torch.Generator().manual_seed(8)
labels = torch.randint(0, 3, (241,), generator=g)
features = torch.eye(3)[labels].repeat(1, 4) + 0.7 * torch.randn(241, 12, generator=g)
train_set = TensorDataset(features, labels)

sampler = DistributedSampler(train_set, num_replicas=dist.get_world_size(), rank=dist.get_rank())  # fault
train_loader = DataLoader(train_set, batch_size=8, sampler=sampler)

model = DDP(nn.Linear(12, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
criterion = nn.CrossEntropyLoss()

for epoch in range(4):
    sampler.set_epoch(epoch)
    epoch_loss = torch.zeros(2)
    for x, y in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        epoch_loss += torch.tensor([loss.item() * len(y), len(y)])
    dist.all_reduce(epoch_loss)
    if dist.get_rank() == 0:
        print(f"Epoch: {epoch:2d}  Loss: {epoch_loss[0] / epoch_loss[1]:.4f}")

dist.destroy_process_group()
