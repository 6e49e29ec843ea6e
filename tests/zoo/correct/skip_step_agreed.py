"""Train on data with corrupt rows; all ranks skip a step together when any of them has a loss that is not finite.

zoo: correct
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def sensors(n=480):
    g = torch.Generator().manual_seed(59)
    x = torch.randn(n, 7, generator=g)
    y = x[:, :1] - x[:, 1:2]
    x[[100, 301], 3] = float("nan")
    return TensorDataset(x, y)


def any_rank(flag):
    flag = flag.to(torch.int32)
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag.item())


def main():
    dist.init_process_group("gloo")
    dataset = sensors()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=12, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(7, 24), nn.ReLU(), nn.Linear(24, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total, skipped = torch.zeros(2), 0
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            if any_rank(~torch.isfinite(loss.detach())):
                skipped += 1
                continue
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: mse {total[0] / total[1]:.4f}, {skipped} steps skipped")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
