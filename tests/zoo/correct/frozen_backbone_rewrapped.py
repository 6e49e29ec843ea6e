"""Fine-tune in two stages: a frozen backbone first, then all layers with a new wrapper.

zoo: correct
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(self.backbone(x))


def stage(model, dataset, epochs, lr, name):
    ddp = DDP(model)
    optimizer = torch.optim.SGD([p for p in ddp.parameters() if p.requires_grad], lr=lr, momentum=0.9)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    for epoch in epochs:
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for x, y in loader:
            loss = nn.functional.cross_entropy(ddp(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"{name}, epoch {epoch}: loss {total[0] / total[1]:.4f}")
    return ddp.module


def main():
    dist.init_process_group("gloo")
    x = torch.randn(480, 12, generator=torch.Generator().manual_seed(1))
    dataset = TensorDataset(x, x[:, :3].argmax(1))
    model = Model()
    model.backbone.requires_grad_(False)
    model = stage(model, dataset, range(0, 2), lr=0.1, name="head only")
    model.backbone.requires_grad_(True)
    stage(model, dataset, range(2, 4), lr=0.05, name="all layers")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
