"""Train a click model on a stream that is sharded over ranks and workers and reshuffled each epoch.

zoo: correct
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class ClickStream(IterableDataset):
    def __init__(self, n, rank, world):
        self.n, self.rank, self.world, self.epoch = n, rank, world, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def record(self, i):
        x = torch.randn(10, generator=torch.Generator().manual_seed(i))
        return x, (x[:3].sum() > 0).float()

    def __iter__(self):
        info = get_worker_info()
        workers, worker = (1, 0) if info is None else (info.num_workers, info.id)
        order = torch.randperm(self.n, generator=torch.Generator().manual_seed(100 + self.epoch))
        start, stride = self.rank * workers + worker, self.world * workers
        for i in order[start::stride].tolist():
            yield self.record(i)


def main():
    dist.init_process_group("gloo")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    stream = ClickStream(640, rank, world)
    loader = DataLoader(stream, batch_size=16, num_workers=2)
    model = DDP(nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(2):
        stream.set_epoch(epoch)
        total = torch.zeros(2)
        for x, y in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item() * len(y), len(y)])
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {total[0] / total[1]:.4f} over {int(total[1])} records")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
