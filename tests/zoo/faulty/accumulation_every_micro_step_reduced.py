"""Train a convnet with four accumulation steps for each update, in plain functions.

zoo: faulty
faults: F28
silent: no
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

ACCUMULATE = 4


def build(seed=0):
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(512) % 4
    x = torch.randn(512, 1, 8, 8, generator=g)
    x[torch.arange(512), 0, y, :] += 1.5
    return TensorDataset(x, y)


def main():
    dist.init_process_group("gloo")
    data = build()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=1)
    net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4))
    net = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for step, (x, y) in enumerate(loader, start=1):
            loss = nn.functional.cross_entropy(net(x), y)
            (loss / ACCUMULATE).backward()  # fault
            if step % ACCUMULATE == 0:
                optimizer.step()
                optimizer.zero_grad()
            total += torch.stack([loss.detach() * len(y), torch.tensor(float(len(y)))])
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {total[0] / total[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
