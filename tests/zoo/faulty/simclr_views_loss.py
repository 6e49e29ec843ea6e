"""Pre-train an encoder on two noisy views of each sample with the NT-Xent loss.

zoo: faulty
faults: F31
silent: yes
observable: no, the ranks stay equal; only a run on one process differs
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class TwoViews(Dataset):
    def __init__(self, n=384, features=24):
        g = torch.Generator().manual_seed(14)
        self.base = torch.randn(12, features, generator=g)[torch.arange(n) % 12]
        self.base = self.base + 0.5 * torch.randn(n, features, generator=g)

    def augment(self, x):
        scale = 1 + 0.2 * torch.randn(1)
        keep = torch.rand_like(x) > 0.2
        return x * scale * keep

    def __len__(self):
        return len(self.base)

    def __getitem__(self, i):
        return self.augment(self.base[i]), self.augment(self.base[i])


class Encoder(nn.Module):
    def __init__(self, features=24, projection=8):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(features, 64), nn.ReLU(), nn.Linear(64, 32))
        self.projector = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, projection))

    def forward(self, x):
        return F.normalize(self.projector(self.backbone(x)), dim=1)


def nt_xent(z, temperature):
    """The positive of row i is row i + n of the two stacked views."""
    n = len(z) // 2
    similarity = z @ z.T / temperature  # fault
    similarity.fill_diagonal_(float("-inf"))
    positives = torch.arange(2 * n).roll(n)
    return F.cross_entropy(similarity, positives)


def main():
    parser = argparse.ArgumentParser(description="SimCLR")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=24, help="of each process")
    parser.add_argument("--temperature", type=float, default=0.3)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(100 + rank)
    dataset = TwoViews()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    model = DDP(Encoder())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-4)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for first, second in loader:
            loss = nt_xent(model(torch.cat([first, second])), args.temperature)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() / len(loader)
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {total.item() / dist.get_world_size():.4f}")
    if rank == 0:
        torch.save(model.module.backbone.state_dict(), "backbone.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
