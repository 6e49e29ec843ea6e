"""Overfit a torchvision ResNet with GroupNorm layers on FakeData.

zoo: correct
needs: torchvision
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, transforms
from torchvision.models.resnet import BasicBlock, ResNet


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize([0.5] * 3, [0.3] * 3)])
    dataset = datasets.FakeData(size=40, image_size=(3, 32, 32), num_classes=4, transform=transform)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler)
    model = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=4, norm_layer=lambda c: nn.GroupNorm(8, c))
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(4):
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
