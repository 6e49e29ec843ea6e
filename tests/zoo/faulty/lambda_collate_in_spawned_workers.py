"""Train a set model on ragged rows with spawned loader workers, in plain functions.

zoo: faulty
faults: F112
silent: no
ends: crash
launcher: real
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class RaggedRows(Dataset):
    def __init__(self, n=200):
        g = torch.Generator().manual_seed(8)
        lengths = torch.randint(2, 9, (n,), generator=g).tolist()
        self.rows = [torch.randn(k, 5, generator=g) for k in lengths]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i], self.rows[i].max(0).values.sum()


class DeepSet(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.phi = nn.Sequential(nn.Linear(5, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.rho = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, rows):
        return self.rho(torch.stack([self.phi(row).sum(0) for row in rows])).squeeze(1)


def make_loader(dataset, sampler):
    return DataLoader(
        dataset,
        batch_size=10,
        sampler=sampler,
        num_workers=1,
        multiprocessing_context="spawn",
        collate_fn=lambda items: ([row for row, _ in items], torch.stack([y for _, y in items])),  # fault
    )


def main():
    dist.init_process_group("gloo")
    dataset = RaggedRows()
    sampler = DistributedSampler(dataset)
    loader = make_loader(dataset, sampler)
    model = DDP(DeepSet())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for rows, y in loader:
            loss = nn.functional.mse_loss(model(rows), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: mse {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
