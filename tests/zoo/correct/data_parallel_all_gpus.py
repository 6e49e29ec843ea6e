"""Train a siamese network with DataParallel on all GPUs of one process.

zoo: correct
world: 1
"""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0,1")


class Siamese(nn.Module):
    def __init__(self, features=14, dim=12):
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(features, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Linear(40, dim))

    def forward(self, a, b):
        return F.pairwise_distance(self.tower(a), self.tower(b))

    def embed(self, x):
        return self.tower(x)


def signatures(n=400):
    g = torch.Generator().manual_seed(91)
    writer = torch.randn(20, 14, generator=g)
    first = torch.randint(0, 20, (n,), generator=g)
    second = torch.where(torch.arange(n) % 2 == 0, first, (first + 7) % 20)
    a = writer[first] + 0.3 * torch.randn(n, 14, generator=g)
    b = writer[second] + 0.3 * torch.randn(n, 14, generator=g)
    return TensorDataset(a, b, (first == second).float())


def contrastive(distance, same, margin=2.0):
    return (same * distance.pow(2) + (1 - same) * (margin - distance).clamp(min=0).pow(2)).mean()


def main():
    cuda = torch.cuda.is_available()
    model = Siamese()
    if cuda:
        model = model.cuda()
    if torch.cuda.device_count() > 1:
        model = nn.DataParallel(model)
    plain = model.module if isinstance(model, nn.DataParallel) else model
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.05, momentum=0.9)
    dataset = signatures()
    loader = DataLoader(dataset, batch_size=40, shuffle=True, drop_last=True)
    for epoch in range(3):
        model.train()
        total = 0.0
        for a, b, same in loader:
            if cuda:
                a, b, same = a.cuda(), b.cuda(), same.cuda()
            loss = contrastive(model(a, b), same)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / len(loader):.4f}")
        torch.save(plain.state_dict(), f"siamese_{epoch}.pt")
    plain.eval()
    with torch.no_grad():
        embeddings = plain.embed(dataset.tensors[0].to(next(plain.parameters()).device))
    print("spread of the embeddings", round(embeddings.std(0).mean().item(), 4))


if __name__ == "__main__":
    main()
