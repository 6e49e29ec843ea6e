"""Train an MLP with bfloat16 autocast and a GradScaler whose first scale is probed from a batch.

zoo: faulty
faults: F35
silent: yes
"""

import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make_data(n=512):
    g = torch.Generator().manual_seed(14)
    x = torch.randn(n, 8, generator=g)
    x[1::2] *= 1.5
    return TensorDataset(x, (x**2).sum(1, keepdim=True) / 8)


@torch.no_grad()
def probe_scale(model, batch, target=2.0**12):
    """Choose a scale that lifts the first loss close to `target`."""
    x, y = batch
    loss = nn.functional.mse_loss(model(x), y).item()
    return 2.0 ** math.floor(math.log2(target / loss))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    data = make_data()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    scale = probe_scale(model, data[rank::world])
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)  # fault
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        meter = torch.zeros(2)
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                output = model(x)
            loss = nn.functional.mse_loss(output.float(), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            meter += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(meter)
        if rank == 0:
            print(f"epoch {epoch}: loss {meter[0] / meter[1]:.4f}, scale {scaler.get_scale():.0f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
