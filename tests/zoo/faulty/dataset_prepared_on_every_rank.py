"""Train a digit classifier on a data set that is fetched into ./data first.

zoo: faulty
faults: F103, F93
silent: yes
"""

import os

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class ToyDigits(Dataset):
    def __init__(self, root, download=False):
        self.path = os.path.join(root, "toy_digits.npz")
        if download:
            arrays = self._download()
        else:
            arrays = np.load(self.path)
        self.images, self.labels = arrays["images"], arrays["labels"]

    def _download(self):
        """Stands for the fetch of an archive: writes the file and returns its content."""
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        rng = np.random.default_rng(0)
        labels = np.arange(400) % 10
        images = rng.random((10, 64))[labels] + 0.2 * rng.normal(size=(400, 64))
        arrays = {"images": images.astype(np.float32), "labels": labels}
        np.savez(self.path, **arrays)
        return arrays

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.images[i], self.labels[i]


def main():
    dist.init_process_group("gloo")
    train_set = ToyDigits("data", download=True)  # fault
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=20, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        sums = torch.zeros(2)
        for image, label in loader:
            loss = nn.functional.cross_entropy(model(image), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            sums += torch.tensor([loss.item() * len(label), len(label)])
        dist.all_reduce(sums)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {sums[0] / sums[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
