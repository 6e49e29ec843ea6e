"""Train a convnet with gradient accumulation; the last window of an epoch may be short.

zoo: correct
"""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

ACCUMULATE = 4


def images(n=352):
    y = torch.arange(n) % 4
    x = torch.randn(n, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    x[torch.arange(n), 0, y] += 1.5
    return TensorDataset(x, y)


def main():
    dist.init_process_group("gloo")
    dataset = images()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler, num_workers=1)
    model = DDP(nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = len(loader)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for i, (x, y) in enumerate(loader):
            update = (i + 1) % ACCUMULATE == 0 or i + 1 == batches
            window = min(ACCUMULATE, batches - i // ACCUMULATE * ACCUMULATE)
            with nullcontext() if update else model.no_sync():
                loss = nn.functional.cross_entropy(model(x), y)
                (loss / window).backward()
            if update:
                optimizer.step()
                optimizer.zero_grad()
            total += torch.tensor([loss.item() * len(y), len(y)])
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {total[0] / total[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
