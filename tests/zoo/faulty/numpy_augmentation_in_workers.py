"""Train an image regressor whose dataset augments with numpy in two loader workers.

zoo: faulty
faults: F66, F64
silent: yes
"""

import argparse

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Blobs(Dataset):
    """Predicts the radius of a blob from an image that is flipped and shifted at random."""

    def __init__(self, n=320, size=10):
        rng = np.random.default_rng(0)
        grid = np.stack(np.meshgrid(np.arange(size), np.arange(size))).astype(np.float32)
        center = rng.uniform(3, 6, size=(n, 2, 1, 1))
        self.radius = rng.uniform(1, 4, size=n).astype(np.float32)
        distance = np.sqrt(((grid[None] - center) ** 2).sum(1))
        self.images = (distance < self.radius[:, None, None]).astype(np.float32)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        if np.random.rand() < 0.5:  # fault
            image = image[:, ::-1]
        image = np.roll(image, np.random.randint(-2, 3), axis=0)  # fault
        return torch.from_numpy(image.copy()).unsqueeze(0), self.radius[index]


def main(args):
    dist.init_process_group("gloo")
    torch.manual_seed(args.seed)
    dataset = Blobs()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler, num_workers=2)
    model = DDP(nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(512, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for image, radius in loader:
            loss = nn.functional.mse_loss(model(image).squeeze(1), radius)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item() * len(radius), len(radius)])
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: mse {total[0] / total[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    main(parser.parse_args())
