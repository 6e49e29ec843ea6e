"""Train a dropout network; each rank has its own seed from the first line on.

zoo: correct
args: --epochs 3
"""

import argparse
import os
import random

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def get_dataset():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(512, 16)).astype(np.float32)
    y = (np.abs(x[:, :4]).sum(1) > np.abs(x[:, 4:8]).sum(1)).astype(np.int64)
    return TensorDataset(torch.from_numpy(x), torch.from_numpy(y))


def main(args):
    rank = int(os.environ["RANK"])
    seed_everything(args.seed + rank)
    dist.init_process_group("gloo")
    dataset = get_dataset()
    sampler = DistributedSampler(dataset, seed=args.seed)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(16, 96), nn.ReLU(), nn.Dropout(0.2), nn.Linear(96, 2)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        sums = torch.zeros(3)
        for x, y in loader:
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            sums += torch.tensor([loss.item() * len(y), (logits.argmax(1) == y).sum().item(), len(y)])
        dist.all_reduce(sums)
        if rank == 0:
            print(f"epoch {epoch}: loss {sums[0] / sums[2]:.4f}, accuracy {sums[1] / sums[2]:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=42)
    main(parser.parse_args())
