"""Train a face-embedding network with an ArcFace criterion; network and criterion each have a wrapper.

zoo: correct
"""

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


def identities(people=12, photos=30):
    g = torch.Generator().manual_seed(41)
    labels = torch.arange(people).repeat_interleave(photos)
    faces = torch.randn(people, 30, generator=g)[labels]
    return TensorDataset(faces + 0.6 * torch.randn(len(labels), 30, generator=g), labels)


def main():
    dist.init_process_group("gloo")
    dataset = identities()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=12, sampler=sampler)
    backbone = DDP(nn.Sequential(nn.Linear(30, 64), nn.PReLU(), nn.Linear(64, 16)))
    criterion = DDP(ArcFace(16, 12))
    optimizer = torch.optim.SGD(
        [{"params": backbone.parameters()}, {"params": criterion.parameters(), "lr": 0.1}], lr=0.05, momentum=0.9
    )
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for x, label in loader:
            loss = criterion(backbone(x), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {total[0] / total[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
