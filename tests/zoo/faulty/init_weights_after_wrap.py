"""Train a convnet with orthogonal initialization and per-rank seeds, in plain functions.

zoo: faulty
faults: F54, F43
silent: yes
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Noise(nn.Module):
    """Adds noise to the input while training."""

    def forward(self, x):
        return x + 0.05 * torch.randn_like(x) if self.training else x


def conv_net():
    return nn.Sequential(
        Noise(),
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 4),
    )


def init_weights(module):
    if isinstance(module, (nn.Conv2d, nn.Linear)):
        nn.init.orthogonal_(module.weight)
        nn.init.zeros_(module.bias)


def colors(n=320):
    y = torch.arange(n) % 4
    x = torch.randn(n, 3, 8, 8, generator=torch.Generator().manual_seed(70))
    x[:, 0] += (y % 2).view(-1, 1, 1)
    x[:, 1] += (y // 2).view(-1, 1, 1)
    return TensorDataset(x, y)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(2000 + rank)
    model = DDP(conv_net())
    model.apply(init_weights)  # fault
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data = colors()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        sums = torch.zeros(2)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            sums += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(sums)
        if rank == 0:
            print(f"epoch {epoch}: loss {sums[0] / sums[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
