"""Train a point cloud classifier with calls of cuda() on machines that have it, in an old style.

zoo: faulty
faults: F105
silent: no
observable: no, there is no device to choose on CPU
"""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

use_cuda = torch.cuda.is_available()


class Solids(Dataset):
    """Points on a sphere, on the faces of a cube, or on a cylinder."""

    def __init__(self, n=240, points=32):
        g = torch.Generator().manual_seed(83)
        self.label = torch.arange(n) % 3
        p = torch.randn(n, points, 3, generator=g)
        sphere = F.normalize(p, dim=-1)
        cube = p / p.abs().amax(-1, keepdim=True)
        cylinder = torch.cat([F.normalize(p[..., :2], dim=-1), p[..., 2:].clamp(-1, 1)], dim=-1)
        shapes = torch.stack([sphere, cube, cylinder])
        self.points = shapes[self.label, torch.arange(n)] + 0.02 * torch.randn(n, points, 3, generator=g)

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        return self.points[i], self.label[i]


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(3, 32)
        self.fc2 = nn.Linear(32, 64)
        self.fc3 = nn.Linear(64, 3)

    def forward(self, x):
        x = F.relu(self.fc2(F.relu(self.fc1(x))))
        return self.fc3(x.max(dim=1)[0])


def main():
    dist.init_process_group(backend="nccl" if use_cuda else "gloo", init_method="env://")
    torch.manual_seed(0)
    train_set = Solids()
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=10, sampler=sampler)
    net = PointNet()
    criterion = nn.CrossEntropyLoss()
    if use_cuda:
        net = net.cuda()  # fault
        criterion = criterion.cuda()
    net = nn.parallel.DistributedDataParallel(net)
    optimizer = optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        net.train()
        train_loss = correct = total = 0
        for inputs, targets in loader:
            if use_cuda:
                inputs, targets = inputs.cuda(), targets.cuda()
            optimizer.zero_grad()
            outputs = net(inputs)
            loss = criterion(outputs, targets)
            loss.backward()
            optimizer.step()
            train_loss += loss.item()
            correct += outputs.max(1)[1].eq(targets).sum().item()
            total += targets.size(0)
        if dist.get_rank() == 0:
            print(f"Loss: {train_loss / len(loader):.3f} | Acc on rank 0: {100.0 * correct / total:.3f}%")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
