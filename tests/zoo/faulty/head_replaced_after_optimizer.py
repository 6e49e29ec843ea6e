"""Fine-tune a small pretrained network on new classes, in plain functions.

zoo: faulty
faults: F42
silent: yes
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Network(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU())
        self.fc = nn.Linear(48, classes)

    def forward(self, x):
        return self.fc(self.features(x))


def pretrained():
    torch.manual_seed(2024)
    return Network(classes=10)


def param_groups(model, lr):
    return [
        {"params": model.features.parameters(), "lr": lr / 10},
        {"params": model.fc.parameters(), "lr": lr},
    ]


def target_task():
    g = torch.Generator().manual_seed(6)
    y = torch.arange(400) % 4
    x = torch.randn(4, 16, generator=g)[y] + 0.5 * torch.randn(400, 16, generator=g)
    return TensorDataset(x, y)


def main():
    dist.init_process_group("gloo")
    model = pretrained()
    optimizer = torch.optim.SGD(param_groups(model, lr=0.1), momentum=0.9)
    model.fc = nn.Linear(48, 4)  # fault
    model = DDP(model)
    dataset = target_task()
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=20, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        sums = torch.zeros(2)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            sums += torch.tensor([loss.item() * len(y), len(y)])
        dist.all_reduce(sums)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {sums[0] / sums[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
