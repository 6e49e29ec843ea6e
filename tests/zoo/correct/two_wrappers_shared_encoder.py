"""Train a classifier and a decoder that share one encoder, each in its own wrapper.

zoo: correct
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Task(nn.Module):
    def __init__(self, encoder, head):
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, x):
        return self.head(self.encoder(x))


def data(n=400):
    g = torch.Generator().manual_seed(21)
    y = torch.arange(n) % 4
    return TensorDataset(torch.randn(4, 12, generator=g)[y] + 0.4 * torch.randn(n, 12, generator=g), y)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    encoder = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 8), nn.ReLU())
    classifier = DDP(Task(encoder, nn.Linear(8, 4)))
    decoder = DDP(Task(encoder, nn.Linear(8, 12)))
    params = {id(p): p for m in (classifier, decoder) for p in m.parameters()}
    optimizer = torch.optim.SGD(params.values(), lr=0.1, momentum=0.9)
    dataset = data()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=20, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for x, y in loader:
            ce, mse = F.cross_entropy(classifier(x), y), F.mse_loss(decoder(x), x)
            optimizer.zero_grad()
            (ce + mse).backward()
            optimizer.step()
            total += torch.stack([ce, mse]).detach() / len(loader) / world
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: cross entropy {total[0]:.4f}, reconstruction {total[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
