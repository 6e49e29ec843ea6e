"""Train a matching network and log to a file and to the console, with the logging module.

zoo: faulty
faults: F101, F93
silent: yes
"""

import logging
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def get_logger(directory):
    os.makedirs(directory, exist_ok=True)
    logger = logging.getLogger("matching")
    logger.setLevel(logging.INFO)
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    to_file = logging.FileHandler(os.path.join(directory, "train.log"), mode="w")  # fault
    to_file.setFormatter(formatter)
    logger.addHandler(to_file)
    if int(os.environ["RANK"]) == 0:
        to_console = logging.StreamHandler()
        to_console.setFormatter(formatter)
        logger.addHandler(to_console)
    return logger


class Matcher(nn.Module):
    def __init__(self, features=10, dim=16):
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(features, 32), nn.Tanh(), nn.Linear(32, dim))
        self.bilinear = nn.Bilinear(dim, dim, 1)

    def forward(self, a, b):
        return self.bilinear(self.tower(a), self.tower(b)).squeeze(1)


def pairs(n=480):
    g = torch.Generator().manual_seed(36)
    a = torch.randn(n, 10, generator=g)
    same = (torch.arange(n) % 2).float()
    b = torch.where(same[:, None] > 0, a + 0.3 * torch.randn(n, 10, generator=g), torch.randn(n, 10, generator=g))
    return TensorDataset(a, b, same)


def main():
    logger = get_logger("logs")
    dist.init_process_group("gloo")
    dataset = pairs()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = DistributedDataParallel(Matcher())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    logger.info("%d parameters", sum(p.numel() for p in model.parameters()))
    for epoch in range(3):
        sampler.set_epoch(epoch)
        stats = torch.zeros(2)
        for a, b, same in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(a, b), same)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            stats += torch.tensor([loss.item() * len(same), len(same)])
        dist.all_reduce(stats)
        logger.info("epoch %d: loss %.4f", epoch, stats[0] / stats[1])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
