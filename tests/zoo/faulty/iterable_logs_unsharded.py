"""Train an anomaly scorer on a stream of log vectors, with an IterableDataset and two workers.

zoo: faulty
faults: F11, F02
silent: yes
"""

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.utils.data as data
from torch.nn.parallel import DistributedDataParallel


class LogStream(data.IterableDataset):
    """Walks over the shards of a log archive."""

    def __init__(self, shards=8, rows=40):
        super().__init__()
        self.shards, self.rows = shards, rows

    def read(self, shard):
        rng = np.random.default_rng(shard)
        rows = rng.normal(size=(self.rows, 16)).astype(np.float32)
        rows[:, 8:] = rows[:, :8] * 0.5
        yield from rows

    def __iter__(self):
        info = data.get_worker_info()
        mine = range(info.id, self.shards, info.num_workers)  # fault
        for shard in mine:
            yield from self.read(shard)


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(16, 12), nn.GELU(), nn.Linear(12, 8))
        self.dec = nn.Linear(8, 16)

    def forward(self, x):
        return self.dec(self.enc(x))


def main():
    dist.init_process_group("gloo")
    loader = data.DataLoader(LogStream(), batch_size=16, num_workers=2)
    model = DistributedDataParallel(AutoEncoder())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(2):
        stats = torch.zeros(2)
        for rows in loader:
            loss = nn.functional.mse_loss(model(rows), rows)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            stats[0] += loss.item() * len(rows)
            stats[1] += len(rows)
        dist.all_reduce(stats)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: reconstruction {stats[0] / stats[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
