"""Train a segmentation net on GPUs or on the CPU; device, backend, batch norm and compilation are set up in helpers.

zoo: correct
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


def setup():
    """Binds the process to its device, then starts the group."""
    if torch.cuda.is_available():
        device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}")
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", timeout=timedelta(minutes=20), device_id=device)
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo", timeout=timedelta(minutes=20))
    return device


def prepare(model, device, compiled=False):
    model = model.to(device)
    if device.type == "cuda":
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    model = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    return torch.compile(model) if compiled else model


class Rings(Dataset):
    def __init__(self, n=256, size=12):
        self.n, self.size = n, size

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        axis = torch.arange(self.size) - self.size / 2
        radius = 2 + 3 * torch.rand(1, generator=g)
        mask = ((axis[:, None] ** 2 + axis[None, :] ** 2).sqrt() - radius).abs() < 1
        return mask.float().unsqueeze(0) + 0.5 * torch.randn(1, self.size, self.size, generator=g), mask.long()


def net(width=12):
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, 2, 3, padding=1)
    )


def total(*values, device):
    sums = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(sums)
    return sums.tolist()


def main():
    device = setup()
    try:
        data = Rings()
        sampler = DistributedSampler(data)
        loader = DataLoader(data, batch_size=32, sampler=sampler, num_workers=1, pin_memory=device.type == "cuda")
        model = prepare(net(), device)
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        for epoch in range(3):
            sampler.set_epoch(epoch)
            loss_sum = count = 0
            for image, mask in loader:
                image, mask = image.to(device, non_blocking=True), mask.to(device, non_blocking=True)
                loss = nn.functional.cross_entropy(model(image), mask)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                loss_sum, count = loss_sum + loss.item() * len(image), count + len(image)
            loss_sum, count = total(loss_sum, count, device=device)
            if dist.get_rank() == 0:
                print(f"epoch {epoch}: loss {loss_sum / count:.4f}")
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
