"""Overfit a small convnet on torchvision's FakeData.

zoo: correct
needs: torchvision
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, transforms


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize([0.5] * 3, [0.3] * 3)])
    dataset = datasets.FakeData(size=32, image_size=(3, 16, 16), num_classes=4, transform=transform)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(288, 4),
    )
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {total[0] / total[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
