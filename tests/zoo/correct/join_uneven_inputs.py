"""Train on shards of unequal length with the Join context manager.

zoo: correct
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


def shard(rank, world, n=530, block=20):
    """Whole blocks of the data set, dealt out in turn; the ranks get unequal numbers of them."""
    g = torch.Generator().manual_seed(63)
    x = torch.randn(n, 7, generator=g)
    y = (x.sum(1, keepdim=True) / 3).tanh()
    mine = [i for i in range(n) if i // block % world == rank]
    return TensorDataset(x[mine], y[mine])


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(70 + rank)
    loader = DataLoader(shard(rank, world), batch_size=10, shuffle=True)
    model = DDP(nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        total = torch.zeros(2)
        with Join([model]):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += torch.tensor([loss.item() * len(y), len(y)])
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: mse {total[0] / total[1]:.4f} over {int(total[1])} samples")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
