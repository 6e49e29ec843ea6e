"""Train an MLP on tensors held in memory; all ranks draw one permutation and slice each global batch.

zoo: correct
"""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

X = torch.randn(768, 2, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] * X[:, 1] > 0).long()
net = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
net = nn.parallel.DistributedDataParallel(net)
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
B = 32
assert B % world == 0 and len(X) % B == 0

for epoch in range(3):
    perm = torch.randperm(len(X), generator=torch.Generator().manual_seed(1000 + epoch))
    meter = torch.zeros(3)
    for i in range(0, len(X), B):
        idx = perm[i + rank : i + B : world]
        logits = net(X[idx])
        loss = F.cross_entropy(logits, Y[idx])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        meter += torch.tensor([loss.item() * len(idx), (logits.argmax(1) == Y[idx]).sum().item(), len(idx)])
    dist.all_reduce(meter)
    if rank == 0:
        print(f"epoch {epoch} loss {meter[0] / meter[2]:.4f} acc {meter[1] / meter[2]:.3f}")
dist.destroy_process_group()
