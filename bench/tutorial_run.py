"""The tutorial loop as a whole run, for time_to_accuracy.py: started by torchrun, one JSON line an epoch from rank 0.

The same model, batch and rate as ours; torchvision's data set and transforms, DataLoader, DDP, fp32, a constant
learning rate. Evaluation counts each test sample once.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset
from torchvision import datasets, transforms

from contestants.base import MEAN, STD
from paceline.tasks.models.cnn import FashionCNN


def train_one_epoch(model: nn.Module, loader: DataLoader[Any], optimizer: torch.optim.Optimizer) -> int:
    """One pass over this rank's part; samples of this rank."""
    model.train()
    samples = 0
    for step, (images, labels) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        samples += len(labels)
        if step % 100 == 0:
            loss.item()  # tutorials print it
    return samples


@torch.no_grad()
def evaluate(ddp: DistributedDataParallel, loader: DataLoader[Any]) -> tuple[int, int]:
    """Right answers and samples of all ranks, on rank 0's batch-norm statistics."""
    module = ddp.module
    for buffer in module.buffers():
        dist.broadcast(buffer, src=0)
    module.eval()
    totals = torch.zeros(2, dtype=torch.int64)
    for images, labels in loader:
        totals += torch.tensor([(module(images).argmax(dim=1) == labels).sum(), len(labels)])
    dist.all_reduce(totals)
    correct, samples = totals.tolist()
    return correct, samples


def run(arguments: argparse.Namespace) -> None:
    """Train up to the target or the last epoch."""
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(arguments.seed)
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((MEAN,), (STD,))])
    train_set = datasets.FashionMNIST(arguments.data_dir, train=True, transform=transform)
    test_set = datasets.FashionMNIST(arguments.data_dir, train=False, transform=transform)
    sampler: Any = DistributedSampler(train_set, shuffle=True, seed=arguments.seed)
    loading = {"num_workers": arguments.loader_workers}
    train_loader = DataLoader(train_set, arguments.batch, sampler=sampler, **loading)
    test_loader = DataLoader(Subset(test_set, range(rank, len(test_set), world)), 250, **loading)
    model = DistributedDataParallel(FashionCNN())
    settings = {"lr": arguments.lr, "momentum": 0.9, "weight_decay": 5e-4}
    optimizer = torch.optim.SGD(model.parameters(), **settings)
    seen = 0
    for epoch in range(arguments.epochs):
        dist.barrier()
        sampler.set_epoch(epoch)
        began = time.perf_counter()
        seen += train_one_epoch(model, train_loader, optimizer) * world
        trained = time.perf_counter()
        correct, counted = evaluate(model, test_loader)
        done = time.perf_counter()
        if rank == 0:
            line = {
                "epoch": epoch + 1,
                "samples": seen,
                "train_s": trained - began,
                "evaluation_s": done - trained,
                "accuracy": correct / counted,
                "counted": counted,
            }
            print(json.dumps(line), flush=True)
        if correct / counted >= arguments.target:
            break


def main() -> None:
    """Join, run, leave."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--batch", type=int, required=True, help="samples a rank")
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--target", type=float, required=True)
    parser.add_argument("--loader-workers", type=int, default=0)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    try:
        run(arguments)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
