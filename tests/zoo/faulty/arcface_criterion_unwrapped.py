"""Train a face-embedding network with an ArcFace criterion that owns the class weights.

zoo: faulty
faults: F41
silent: yes
"""

import itertools

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class ArcFace(nn.Module):
    def __init__(self, dim, classes, scale=16.0, margin=0.2):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, dim) * 0.1)
        self.scale, self.margin = scale, margin

    def forward(self, embedding, label):
        cosine = F.linear(F.normalize(embedding), F.normalize(self.weight)).clamp(-0.999, 0.999)
        angle = cosine.acos() + self.margin * F.one_hot(label, cosine.size(1))
        return F.cross_entropy(self.scale * angle.cos(), label)


class Backbone(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(30, 64), nn.PReLU(), nn.Linear(64, dim))

    def forward(self, x):
        return self.net(x)


def identities(people=12, photos=30):
    g = torch.Generator().manual_seed(41)
    faces = torch.randn(people, 30, generator=g)
    labels = torch.arange(people).repeat_interleave(photos)
    return TensorDataset(faces[labels] + 0.6 * torch.randn(len(labels), 30, generator=g), labels)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(5)
    dataset = identities()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=12, sampler=sampler)
    backbone = DDP(Backbone())
    criterion = ArcFace(16, 12)  # fault
    optimizer = torch.optim.SGD(itertools.chain(backbone.parameters(), criterion.parameters()), lr=0.05, momentum=0.9)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for x, label in loader:
            loss = criterion(backbone(x), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {total.item() / len(loader) / dist.get_world_size():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
