"""Digits on several processes, with a fault that no error and no curve shows.

    torchrun --nproc-per-node 2 examples/silent_fault.py
    paceline run --nproc-per-node 2 examples/silent_fault.py

Both end with exit code 0 and print falling losses. The second says what is wrong.
"""

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Classifier(nn.Module):
    """A small network that computes its own loss."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, x):
        """Class scores of shape (batch, 10)."""
        return self.net(x)

    def loss(self, x, y):
        """Mean cross-entropy."""
        return nn.functional.cross_entropy(self.net(x), y)


def main():
    dist.init_process_group("gloo")
    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    sampler = DistributedSampler(TensorDataset(x, y))
    loader = DataLoader(TensorDataset(x, y), batch_size=32, sampler=sampler)
    model = DistributedDataParallel(Classifier())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for images, labels in loader:
            loss = model.module.loss(images, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item() * len(labels), len(labels)])
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {total[0] / total[1]:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
