"""Train a tabular transformer with a Trainer that can compile the network.

zoo: faulty
faults: F53
silent: no
observable: no, compiling takes minutes on this machine, so the flag is off
"""

import argparse
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@dataclass
class TrainingArguments:
    epochs: int = 3
    batch_size: int = 16
    lr: float = 3e-3
    compile: bool = False


class FeatureTokenizer(nn.Module):
    def __init__(self, features, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, dim) / dim**0.5)
        self.bias = nn.Parameter(torch.zeros(features, dim))

    def forward(self, x):
        return x.unsqueeze(-1) * self.weight + self.bias


class TabTransformer(nn.Module):
    def __init__(self, features=8, dim=16, classes=3):
        super().__init__()
        self.tokens = FeatureTokenizer(features, dim)
        self.attention = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        t = self.tokens(x)
        t = self.norm(t + self.attention(t, t, t, need_weights=False)[0])
        return self.head(t.mean(1))


class Trainer:
    def __init__(self, model, args, train_dataset):
        self.args = args
        self.sampler = DistributedSampler(train_dataset)
        self.loader = DataLoader(train_dataset, batch_size=args.batch_size, sampler=self.sampler)
        self.model = self.wrap_model(model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)

    def wrap_model(self, model):
        if self.args.compile:
            model = torch.compile(model, mode="max-autotune")
        return DistributedDataParallel(model)  # fault

    def training_step(self, inputs, labels):
        self.model.train()
        loss = nn.functional.cross_entropy(self.model(inputs), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def train(self):
        for epoch in range(self.args.epochs):
            self.sampler.set_epoch(epoch)
            loss = torch.stack([self.training_step(x, y) for x, y in self.loader]).mean()
            dist.all_reduce(loss)
            if dist.get_rank() == 0:
                print({"epoch": epoch, "train_loss": round(loss.item() / dist.get_world_size(), 4)})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--compile", action="store_true")
    flags = parser.parse_args()
    dist.init_process_group("gloo")
    x = torch.randn(384, 8, generator=torch.Generator().manual_seed(6))
    dataset = TensorDataset(x, x[:, :3].argmax(1))
    Trainer(TabTransformer(), TrainingArguments(epochs=flags.epochs, compile=flags.compile), dataset).train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
