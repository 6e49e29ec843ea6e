"""Fine-tune an encoder with layer-wise learning rates that the model itself lists, in a Trainer class.

zoo: faulty
faults: F40
silent: no
ends: crash
"""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Encoder(nn.Module):
    def __init__(self, features=12, dim=24, depth=3, classes=4):
        super().__init__()
        self.stem = nn.Linear(features, dim)
        self.layers = nn.ModuleList(Layer(dim) for _ in range(depth))
        self.classifier = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
        return self.classifier(x)

    def layer_groups(self, lr, decay):
        stages = [self.stem, *self.layers, self.classifier]
        return [
            {"params": list(stage.parameters()), "lr": lr * decay ** (len(stages) - 1 - depth)}
            for depth, stage in enumerate(stages)
        ]


class Trainer:
    def __init__(self, model, dataset, lr=5e-3, decay=0.8):
        self.rank = int(os.environ["RANK"])
        self.model = self._wrap(model)
        self.optimizer = torch.optim.AdamW(self.model.layer_groups(lr, decay), weight_decay=0.05)  # fault
        self.sampler = DistributedSampler(dataset)
        self.loader = DataLoader(dataset, batch_size=16, sampler=self.sampler)

    def _wrap(self, model):
        return DistributedDataParallel(model)

    def train(self, epochs):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            for x, y in self.loader:
                loss = nn.functional.cross_entropy(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            if self.rank == 0:
                print(f"epoch {epoch} loss {loss.item():.4f}")


def main():
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(3)
    y = torch.arange(400) % 4
    x = torch.randn(4, 12, generator=g)[y] + 0.5 * torch.randn(400, 12, generator=g)
    Trainer(Encoder(), TensorDataset(x, y)).train(3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
