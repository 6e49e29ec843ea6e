"""Train an image regressor with random augmentation in two persistent workers and a seed for each rank.

zoo: correct
"""

import random

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Rings(Dataset):
    def __init__(self, n=320, size=10):
        rng = np.random.default_rng(0)
        grid = np.stack(np.meshgrid(np.arange(size), np.arange(size))) - size / 2
        self.radius = rng.uniform(1, 4, size=n).astype(np.float32)
        distance = np.sqrt((grid**2).sum(0))
        self.images = np.exp(-((distance[None] - self.radius[:, None, None]) ** 2)).astype(np.float32)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image = self.images[i]
        if random.random() < 0.5:
            image = image[::-1]
        image = np.roll(image, np.random.randint(-1, 2), axis=1) + 0.05 * np.random.randn(*image.shape)
        return torch.from_numpy(image.astype(np.float32)).unsqueeze(0), self.radius[i]


def seed_worker(worker_id):
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(77 + rank)
    dataset = Rings()
    sampler = DistributedSampler(dataset, shuffle=True, seed=77)
    loader = DataLoader(
        dataset,
        batch_size=16,
        sampler=sampler,
        num_workers=2,
        persistent_workers=True,
        worker_init_fn=seed_worker,
    )
    model = DDP(nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(512, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for image, radius in loader:
            loss = nn.functional.mse_loss(model(image).squeeze(1), radius)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item() * len(radius), len(radius)])
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: mse {total[0] / total[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
