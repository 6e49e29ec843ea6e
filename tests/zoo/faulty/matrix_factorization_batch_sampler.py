"""Train a matrix factorization recommender, as module-level code with its own batch sampler.

zoo: faulty
faults: F01
silent: yes
"""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

N_USERS, N_ITEMS, DIM = 60, 40, 8

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
random.seed(100 + rank)


class UserBatches:
    """Yields the interactions of a few users at a time."""

    def __init__(self, users, users_per_batch):
        self.rows = [torch.where(users == u)[0].tolist() for u in range(N_USERS)]
        self.k = users_per_batch

    def __len__(self):
        return N_USERS // self.k

    def __iter__(self):
        order = list(range(N_USERS))  # fault
        random.shuffle(order)
        for i in range(0, N_USERS, self.k):
            yield [row for u in order[i : i + self.k] for row in self.rows[u]]


class MF(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(N_USERS, DIM)
        self.item = nn.Embedding(N_ITEMS, DIM)

    def forward(self, u, i):
        return (self.user(u) * self.item(i)).sum(-1)


g = torch.Generator().manual_seed(3)
users = torch.arange(N_USERS).repeat_interleave(10)
items = torch.randint(0, N_ITEMS, (N_USERS * 10,), generator=g)
ratings = ((users % 5) == (items % 5)).float()
data = TensorDataset(users, items, ratings)
loader = DataLoader(data, batch_sampler=UserBatches(users, 3))

model = DDP(MF())
opt = torch.optim.Adam(model.parameters(), lr=0.05)
for epoch in range(3):
    total = torch.zeros(())
    for u, i, r in loader:
        opt.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(model(u, i), r)
        loss.backward()
        opt.step()
        total += loss.detach() / len(loader)
    dist.all_reduce(total)
    if rank == 0:
        print("epoch", epoch, "bce", round(total.item() / world, 4))
dist.destroy_process_group()
