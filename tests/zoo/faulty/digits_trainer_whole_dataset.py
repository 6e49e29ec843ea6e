"""Train a convnet on synthetic digit images, with a Trainer class and loader workers.

zoo: faulty
faults: F01
silent: yes
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Digits(Dataset):
    """Ten prototypes plus pixel noise that is fixed per index."""

    def __init__(self, size):
        self.size = size
        self.prototypes = torch.rand(10, 1, 8, 8, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        noise = torch.randn(1, 8, 8, generator=torch.Generator().manual_seed(i))
        return self.prototypes[i % 10] + 0.3 * noise, i % 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.fc = nn.Linear(8 * 16, 10)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        return self.fc(torch.max_pool2d(x, 2).flatten(1))


class Trainer:
    def __init__(self, model, dataset, batch_size=20):
        self.rank = int(os.environ["RANK"])
        self.model = DistributedDataParallel(model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.loader = DataLoader(
            dataset,
            batch_size=batch_size,
            shuffle=True,  # fault
            num_workers=2,
            drop_last=True,
        )

    def train_epoch(self, epoch):
        losses = []
        for images, labels in self.loader:
            loss = nn.functional.cross_entropy(self.model(images), labels)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            losses.append(loss.detach())
        mean = torch.stack(losses).mean()
        dist.all_reduce(mean)
        if self.rank == 0:
            print(f"[epoch {epoch}] train loss {mean.item() / dist.get_world_size():.3f}")

    def fit(self, epochs):
        for epoch in range(epochs):
            self.train_epoch(epoch)


if __name__ == "__main__":
    dist.init_process_group(backend="gloo")
    Trainer(Net(), Digits(400)).fit(2)
    dist.destroy_process_group()
