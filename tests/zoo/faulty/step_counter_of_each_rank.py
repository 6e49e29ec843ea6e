"""Train with gradient clipping and log averaged losses every few steps.

zoo: faulty
faults: F91, F80, F82
silent: no
ends: hang
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

LOG_EVERY = 5


def outliers(n=400):
    g = torch.Generator().manual_seed(9)
    x = torch.randn(n, 8, generator=g)
    y = x.prod(1, keepdim=True)
    y[::37] *= 50
    return TensorDataset(x, y)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1)))
    data = outliers()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=10, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    global_step = 0
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.smooth_l1_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if loss.item() < 3.0:
                global_step += 1  # fault
            if global_step % LOG_EVERY == 0:  # fault
                mean = loss.detach().clone()
                dist.all_reduce(mean)
                if dist.get_rank() == 0:
                    print(f"step {global_step}: {mean.item() / dist.get_world_size():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
