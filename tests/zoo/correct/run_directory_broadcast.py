"""Train a classifier in a run directory that rank 0 names, with a logger that only rank 0 opens.

zoo: correct
"""

import csv
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class NullLogger:
    def log(self, *row):
        pass

    def close(self):
        pass


class CSVLogger(NullLogger):
    def __init__(self, path):
        self.file = path.open("w", newline="")
        self.writer = csv.writer(self.file)

    def log(self, *row):
        self.writer.writerow(row)

    def close(self):
        self.file.close()


def new_run(rank):
    name = [f"runs/{time.strftime('%Y%m%d-%H%M%S')}" if rank == 0 else None]
    dist.broadcast_object_list(name, src=0)
    path = Path(name[0])
    if rank == 0:
        path.mkdir(parents=True)
    dist.barrier()
    return path


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    run = new_run(rank)
    logger = CSVLogger(run / "log.csv") if rank == 0 else NullLogger()
    x = torch.randn(384, 12, generator=torch.Generator().manual_seed(8))
    data = TensorDataset(x, (x[:, 0] > x[:, 1]).long())
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for xb, yb in loader:
            loss = nn.functional.cross_entropy(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        logger.log(epoch, round((total[0] / total[1]).item(), 5))
        if rank == 0:
            print(f"epoch {epoch}: loss {total[0] / total[1]:.4f}")
            torch.save(model.module.state_dict(), run / "model.pt")
    logger.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
