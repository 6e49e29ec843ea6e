"""Train a snapshot ensemble: the wrapped model is deep-copied after a warm-up and both copies go on.

zoo: correct
"""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def fit(model, dataset, epochs, lr, tag, seed):
    sampler = DistributedSampler(dataset, seed=seed)
    loader = DataLoader(dataset, batch_size=20, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"{tag} epoch {epoch}: mse {total[0] / total[1]:.4f}")


def main():
    dist.init_process_group("gloo")
    x = torch.randn(400, 5, generator=torch.Generator().manual_seed(14))
    dataset = TensorDataset(x, (x[:, :1] - x[:, 1:2]).sin())
    model = DDP(nn.Sequential(nn.Linear(5, 40), nn.Tanh(), nn.Linear(40, 1)))
    fit(model, dataset, epochs=1, lr=0.05, tag="warm-up", seed=0)
    members = [model, copy.deepcopy(model)]
    for seed, (member, lr) in enumerate(zip(members, (0.1, 0.02)), start=1):
        fit(member, dataset, epochs=2, lr=lr, tag=f"lr={lr}", seed=seed)
    if dist.get_rank() == 0:
        with torch.no_grad():
            mean = torch.stack([m.module(x) for m in members]).mean(0)
        print(f"ensemble mse {nn.functional.mse_loss(mean, dataset.tensors[1]).item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
