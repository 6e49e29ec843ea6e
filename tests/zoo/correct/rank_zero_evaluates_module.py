"""Train a GroupNorm convnet; rank 0 evaluates the whole validation set through the inner module.

zoo: correct
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class ConvNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.norm1 = nn.GroupNorm(2, 8)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.norm2 = nn.GroupNorm(4, 16)
        self.fc = nn.Linear(16, classes)

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x)))
        x = F.relu(self.norm2(self.conv2(x)))
        return self.fc(x.mean((2, 3)))


def images(n, seed):
    y = torch.arange(n) % 4
    x = 0.5 * torch.randn(n, 1, 8, 8, generator=torch.Generator().manual_seed(seed))
    x[torch.arange(n), 0, 2 * y] += 1.0
    x[torch.arange(n), 0, :, y] += 1.0
    return TensorDataset(x, y)


@torch.no_grad()
def evaluate(network, dataset):
    network.eval()
    correct = sum((network(x).argmax(1) == y).sum().item() for x, y in DataLoader(dataset, batch_size=64))
    network.train()
    return correct / len(dataset)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    train_set, val_set = images(384, 0), images(101, 1)
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=16, sampler=sampler)
    model = DistributedDataParallel(ConvNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: accuracy {evaluate(model.module, val_set):.4f} on {len(val_set)} images")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
