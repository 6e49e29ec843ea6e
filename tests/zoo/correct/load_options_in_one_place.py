"""Train a text scorer in two stages; the options for reading weights are kept in one dictionary.

zoo: correct
"""

import functools
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

READ = {"map_location": "cpu", "weights_only": True}
read_weights = functools.partial(torch.load, **READ)


class Scorer(nn.Module):
    def __init__(self, words=90, dim=16):
        super().__init__()
        self.body = nn.Sequential(nn.EmbeddingBag(words, dim), nn.Linear(dim, dim), nn.ReLU())
        self.head = nn.Linear(dim, 1)

    def forward(self, words):
        return self.head(self.body(words)).squeeze(1)


def essays(seed, n=360):
    g = torch.Generator().manual_seed(seed)
    words = torch.randint(0, 90, (n, 12), generator=g)
    value = torch.linspace(-1, 1, 90)
    return TensorDataset(words, value[words].mean(1) * 3)


def unwrap(model):
    return model.module if isinstance(model, DDP) else model


def write_weights(model, path):
    if dist.get_rank() == 0:
        torch.save(unwrap(model).body.state_dict(), path + ".part")
        os.replace(path + ".part", path)
    dist.barrier()


def stage(model, dataset, epochs, lr, name):
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=18, sampler=sampler)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for words, score in loader:
            loss = nn.functional.mse_loss(model(words), score)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"{name} {epoch}: mse {total[0] / total[1]:.4f}")


def main():
    dist.init_process_group("gloo")
    first = DDP(Scorer())
    stage(first, essays(0), epochs=2, lr=1e-2, name="pre-training")
    write_weights(first, "body.pt")
    second = Scorer()
    second.body.load_state_dict(read_weights("body.pt"))
    stage(DDP(second), essays(1), epochs=2, lr=3e-3, name="tuning")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
