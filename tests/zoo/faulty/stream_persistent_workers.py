"""Train a logistic regression on a sharded stream with persistent workers.

zoo: faulty
faults: F08
silent: yes
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class ShuffledStream(IterableDataset):
    """Reads records in an order that depends on the epoch; each worker of each rank owns a stride."""

    def __init__(self, records, rank, world, seed=0):
        self.records, self.rank, self.world, self.seed = records, rank, world, seed
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        info = get_worker_info()
        workers, worker = (info.num_workers, info.id) if info else (1, 0)
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(len(self.records), generator=g)
        for i in order[self.rank * workers + worker :: self.world * workers].tolist():
            yield self.records[i]


def make_records(n=512):
    g = torch.Generator().manual_seed(21)
    x = torch.randn(n, 10, generator=g)
    y = (x @ torch.linspace(-1, 1, 10) > 0).float()
    return list(zip(x, y))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    stream = ShuffledStream(make_records(), rank, world)
    loader = DataLoader(
        stream,
        batch_size=16,
        num_workers=2,
        persistent_workers=True,  # fault
    )
    model = DDP(nn.Linear(10, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.3)
    for epoch in range(3):
        stream.set_epoch(epoch)
        loss_sum = torch.zeros(2)
        for x, y in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            loss_sum += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(loss_sum)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss_sum[0] / loss_sum[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
