"""Train a network with one head for each target column; the set of names is sorted first.

zoo: correct
launcher: real
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

TARGETS = ["temperature", "humidity", "pressure", "wind", "rain", "snow"]


class Weather(nn.Module):
    def __init__(self, targets):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.heads = nn.ModuleDict({name: nn.Linear(32, 1) for name in sorted(targets)})

    def forward(self, x):
        h = self.trunk(x)
        return {name: head(h).squeeze(1) for name, head in self.heads.items()}


def main():
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(61)
    x = torch.randn(480, 8, generator=g)
    dataset = TensorDataset(x, torch.tanh(x @ torch.randn(8, len(TARGETS), generator=g)))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    selected = set(TARGETS) - {"snow"}
    model = DDP(Weather(selected))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        meter = torch.zeros(2)
        for x, y in loader:
            outputs = model(x)
            loss = sum(nn.functional.mse_loss(out, y[:, TARGETS.index(name)]) for name, out in outputs.items())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            meter += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(meter)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {meter[0] / meter[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
