"""Train a tiny encoder-decoder for segmentation, with plain functions.

zoo: faulty
faults: F37
silent: yes
"""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Shapes(Dataset):
    """A bright square on noise; the mask is the square."""

    def __init__(self, n=240, size=12):
        self.n, self.size = n, size

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        image = 0.3 * torch.randn(1, self.size, self.size, generator=g)
        top, left = torch.randint(0, self.size - 4, (2,), generator=g).tolist()
        mask = torch.zeros(1, self.size, self.size)
        mask[:, top : top + 4, left : left + 4] = 1.0
        return image + mask, mask


class TinyUNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.down = nn.Conv2d(1, width, 3, padding=1)
        self.mid = nn.Conv2d(width, width, 3, padding=1)
        self.up = nn.Conv2d(2 * width, 1, 3, padding=1)

    def forward(self, x):
        a = F.relu(self.down(x))
        b = F.relu(self.mid(F.max_pool2d(a, 2)))
        return self.up(torch.cat([a, F.interpolate(b, scale_factor=2)], dim=1))


def train_step(model, optimizer, image, mask):
    logits = model.module(image)  # fault
    loss = F.binary_cross_entropy_with_logits(logits, mask)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def main():
    dist.init_process_group("gloo")
    data = Shapes()
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=10, sampler=sampler, num_workers=1)
    model = DDP(TinyUNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        loss = torch.stack([train_step(model, optimizer, image, mask) for image, mask in loader]).mean()
        dist.all_reduce(loss)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} bce {loss.item() / dist.get_world_size():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
