"""Train a depth estimator with meters that are synchronized at the end of an epoch.

zoo: faulty
faults: F76
silent: no
observable: no, the tensor is on the wrong device only with NCCL
"""

import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

USE_CUDA = torch.cuda.is_available()


class Meter:
    def __init__(self, name):
        self.name = name
        self.reset()

    def reset(self):
        self.total, self.count = 0.0, 0

    def update(self, value, n):
        self.total += value * n
        self.count += n

    def synchronize(self):
        pair = torch.tensor([self.total, self.count])
        dist.barrier()
        dist.all_reduce(pair, op=dist.ReduceOp.SUM)  # fault
        self.total, self.count = pair.tolist()

    def __str__(self):
        return f"{self.name} {self.total / self.count:.4f}"


class DepthNet(nn.Module):
    def __init__(self, width=10):
        super().__init__()
        self.encode = nn.Conv2d(2, width, 3, padding=1)
        self.decode = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, pair):
        return nn.functional.softplus(self.decode(torch.relu(self.encode(pair))))


def stereo(n=240, size=10):
    g = torch.Generator().manual_seed(8)
    depth = 1 + torch.rand(n, 1, size, 1, generator=g).expand(n, 1, size, size)
    left = torch.rand(n, 1, size, size, generator=g)
    return TensorDataset(torch.cat([left, left / depth], dim=1), depth)


class Engine:
    def __init__(self):
        self.local_rank = int(os.environ["LOCAL_RANK"])
        if USE_CUDA:
            torch.cuda.set_device(self.local_rank)
        dist.init_process_group("nccl" if USE_CUDA else "gloo")
        self.device = torch.device(f"cuda:{self.local_rank}" if USE_CUDA else "cpu")
        data = stereo()
        self.sampler = DistributedSampler(data)
        self.loader = DataLoader(data, batch_size=12, sampler=self.sampler)
        self.model = DistributedDataParallel(DepthNet().to(self.device))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        self.meters = [Meter("loss"), Meter("relative error")]

    def epoch(self, number):
        self.sampler.set_epoch(number)
        for meter in self.meters:
            meter.reset()
        began = time.time()
        for pair, depth in self.loader:
            pair, depth = pair.to(self.device), depth.to(self.device)
            predicted = self.model(pair)
            loss = nn.functional.l1_loss(predicted.log(), depth.log())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.meters[0].update(loss.item(), len(depth))
            self.meters[1].update(((predicted - depth).abs() / depth).mean().item(), len(depth))
        for meter in self.meters:
            meter.synchronize()
        if dist.get_rank() == 0:
            print(f"epoch {number} ({time.time() - began:.1f} s): " + ", ".join(map(str, self.meters)))


if __name__ == "__main__":
    engine = Engine()
    for number in range(2):
        engine.epoch(number)
    dist.destroy_process_group()
