"""Pre-train an encoder with a supervised contrastive loss and a projection head.

zoo: faulty
faults: F41
silent: yes
"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class SupConNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 32))
        self.head = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, x):
        return F.normalize(self.head(self.encoder(x)), dim=1)


def sup_con_loss(z, labels, temperature=0.2):
    logits = z @ z.T / temperature
    eye = torch.eye(len(z), dtype=torch.bool)
    positive = (labels[:, None] == labels[None, :]) & ~eye
    log_prob = logits - torch.logsumexp(logits.masked_fill(eye, -1e9), dim=1, keepdim=True)
    return -(log_prob * positive).sum() / positive.sum().clamp(min=1)


def set_model():
    model = SupConNet()
    if int(os.environ["WORLD_SIZE"]) > 1:
        model.encoder = DistributedDataParallel(model.encoder)  # fault
    return model


def set_loader():
    g = torch.Generator().manual_seed(18)
    labels = torch.arange(384) % 6
    x = torch.randn(6, 24, generator=g)[labels] + 0.5 * torch.randn(384, 24, generator=g)
    dataset = TensorDataset(x, labels)
    sampler = DistributedSampler(dataset)
    return DataLoader(dataset, batch_size=24, sampler=sampler, drop_last=True), sampler


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = set_model()
    loader, sampler = set_loader()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(1, 4):
        sampler.set_epoch(epoch)
        losses = []
        for x, labels in loader:
            loss = sup_con_loss(model(x), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        mean = torch.stack(losses).mean()
        dist.all_reduce(mean)
        if int(os.environ["RANK"]) == 0:
            print(f"epoch {epoch}, loss {mean.item() / dist.get_world_size():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
