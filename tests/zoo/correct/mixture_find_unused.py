"""Train a hard mixture of experts in which a batch may leave experts unused.

zoo: correct
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Mixture(nn.Module):
    """Sends each sample to the expert of its domain."""

    def __init__(self, domains=4, features=6):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(features, 1) for _ in range(domains))
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x, domain):
        out = torch.zeros(len(x), 1)
        for d in domain.unique().tolist():
            rows = (domain == d).nonzero().squeeze(1)
            out = out.index_add(0, rows, self.experts[d](x[rows]))
        return out + self.bias


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(25)
    x = torch.randn(160, 6, generator=g)
    domain = torch.randint(0, 4, (160,), generator=g)
    y = (x * torch.randn(4, 6, generator=g)[domain]).sum(1, keepdim=True)
    dataset = TensorDataset(x, domain, y)
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=2, sampler=sampler)
    model = DDP(Mixture(), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for xb, db, yb in loader:
            loss = nn.functional.mse_loss(model(xb, db), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item() * len(yb), len(yb)])
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: mse {total[0] / total[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
