"""Train a denoiser for one-dimensional signals with a batch size for the whole job.

zoo: faulty
faults: F16
silent: yes
observable: no, a batch of this size on each rank could be meant
args: --epochs 2 --batch-size 32
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def parse_args():
    parser = argparse.ArgumentParser(description="signal denoising")
    parser.add_argument("--epochs", default=10, type=int)
    parser.add_argument("--batch-size", default=64, type=int, help="total batch size over all processes")
    parser.add_argument("--lr", default=0.02, type=float, help="learning rate for the total batch size")
    parser.add_argument("--workers", default=0, type=int)
    return parser.parse_args()


def signals(n=512, length=48):
    g = torch.Generator().manual_seed(9)
    frequency = 1 + 4 * torch.rand(n, 1, generator=g)
    phase = 6.28 * torch.rand(n, 1, generator=g)
    clean = torch.sin(torch.linspace(0, 6.28, length) * frequency + phase)
    return TensorDataset((clean + 0.4 * torch.randn(n, length, generator=g)).unsqueeze(1), clean.unsqueeze(1))


def denoiser(width=12):
    return nn.Sequential(
        nn.Conv1d(1, width, 5, padding=2),
        nn.GELU(),
        nn.Conv1d(width, width, 5, padding=2),
        nn.GELU(),
        nn.Conv1d(width, 1, 5, padding=2),
    )


def main():
    args = parse_args()
    dist.init_process_group("gloo")
    is_main = dist.get_rank() == 0
    if is_main:
        print(f"{dist.get_world_size()} processes, batch size {args.batch_size}")
    dataset = signals()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(
        dataset,
        batch_size=args.batch_size,  # fault
        sampler=sampler,
        num_workers=args.workers,
        drop_last=True,
    )
    model = DDP(denoiser())
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(loader))
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for noisy, clean in loader:
            loss = nn.functional.mse_loss(model(noisy), clean)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.detach() / len(loader)
        dist.all_reduce(total)
        if is_main:
            print(f"epoch {epoch}: mse {total.item() / dist.get_world_size():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
