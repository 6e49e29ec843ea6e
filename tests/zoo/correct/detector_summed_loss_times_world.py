"""Train a keypoint regressor with a summed loss that is scaled by the world size, as YOLO does.

zoo: correct
"""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

RANK = int(os.environ.get("RANK", -1))
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", 1))


class Points(Dataset):
    def __init__(self, n=320, size=8):
        g = torch.Generator().manual_seed(12)
        self.xy = torch.randint(0, size, (n, 2), generator=g)
        self.images = 0.1 * torch.randn(n, 1, size, size, generator=g)
        self.images[torch.arange(n), 0, self.xy[:, 1], self.xy[:, 0]] += 2.0

    def __len__(self):
        return len(self.xy)

    def __getitem__(self, i):
        return self.images[i], self.xy[i].float() / 8


class ComputeLoss:
    """Sums over the boxes of the local batch."""

    def __init__(self, gain=0.05):
        self.gain = gain

    def __call__(self, prediction, target):
        items = nn.functional.smooth_l1_loss(prediction, target, reduction="sum", beta=0.1)
        return self.gain * items, items.detach()


def main():
    dist.init_process_group("gloo")
    data = Points()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler, num_workers=1)
    model = DDP(nn.Sequential(nn.Conv2d(1, 8, 3), nn.SiLU(), nn.Flatten(), nn.Linear(288, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    compute_loss = ComputeLoss()
    for epoch in range(3):
        sampler.set_epoch(epoch)
        mloss = torch.zeros(2)
        for images, targets in loader:
            loss, items = compute_loss(model(images), targets)
            if RANK != -1:
                loss *= WORLD_SIZE
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            mloss += torch.stack([items, torch.tensor(float(len(targets)))])
        dist.all_reduce(mloss)
        if RANK in (-1, 0):
            print(f"epoch {epoch}: loss per image {mloss[0] / mloss[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
