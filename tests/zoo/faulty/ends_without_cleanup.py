"""Train a hashing model for images with binary codes, in plain functions.

zoo: faulty
faults: F118
silent: no
observable: no, the group complains at its end only with NCCL
"""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def photos(n=384, classes=6):
    g = torch.Generator().manual_seed(34)
    y = torch.arange(n) % classes
    return TensorDataset(torch.randn(classes, 30, generator=g)[y] + 0.6 * torch.randn(n, 30, generator=g), y)


class HashNet(nn.Module):
    def __init__(self, bits=12, classes=6):
        super().__init__()
        self.code = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, bits), nn.Tanh())
        self.classify = nn.Linear(bits, classes)

    def forward(self, x):
        code = self.code(x)
        return code, self.classify(code)


def train(model, loader, sampler, device, epochs=3):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        totals = torch.zeros(2, device=device)
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            code, logits = model(x)
            loss = nn.functional.cross_entropy(logits, y) + 0.1 * (1 - code.abs()).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            totals += torch.stack([loss.detach() * len(y), torch.tensor(float(len(y)), device=device)])
        dist.all_reduce(totals)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {totals[0] / totals[1]:.4f}")


def main():
    cuda = torch.cuda.is_available()
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        dist.init_process_group("gloo")
    dataset = photos()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = DDP(HashNet().to(device), device_ids=[local_rank] if cuda else None)
    train(model, loader, sampler, device)
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), "hash.pt")  # fault


if __name__ == "__main__":
    main()
