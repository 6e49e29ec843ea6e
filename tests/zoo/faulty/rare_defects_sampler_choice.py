"""Train an inspection model on images with few defects, on one process or on several.

zoo: faulty
faults: F10
silent: yes
observable: no, the ranks agree and see different samples; only the share of defects in a batch is lost
args: --balance --epochs 3
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, RandomSampler, WeightedRandomSampler


class Parts(Dataset):
    def __init__(self, n=480, defect_rate=0.06):
        g = torch.Generator().manual_seed(5)
        self.defect = (torch.rand(n, generator=g) < defect_rate).long()
        self.image = torch.randn(n, 1, 10, 10, generator=g)
        self.image[self.defect == 1, :, 4:6, 2:8] += 1.5

    def __len__(self):
        return len(self.defect)

    def __getitem__(self, i):
        return self.image[i], self.defect[i]

    def weights(self):
        return (1.0 / torch.bincount(self.defect).double())[self.defect]


def make_sampler(dataset, args):
    if args.distributed:
        return DistributedSampler(dataset, shuffle=True, seed=args.seed)  # fault
    if args.balance:
        return WeightedRandomSampler(dataset.weights(), num_samples=len(dataset), replacement=True)
    return RandomSampler(dataset)


def train_one_epoch(model, loader, optimizer, args):
    model.train()
    counts = torch.zeros(3)
    for image, defect in loader:
        logits = model(image)
        loss = nn.functional.cross_entropy(logits, defect)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        counts += torch.tensor([loss.item() * len(defect), (logits.argmax(1) == defect).sum().item(), len(defect)])
    if args.distributed:
        dist.all_reduce(counts)
    return counts[0] / counts[2], counts[1] / counts[2]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--balance", action="store_true", help="draw good and defective parts equally often")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.distributed = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if args.distributed:
        dist.init_process_group("gloo")
    rank = dist.get_rank() if args.distributed else 0
    torch.manual_seed(args.seed + rank)
    dataset = Parts()
    sampler = make_sampler(dataset, args)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler, drop_last=True)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveMaxPool2d(4), nn.Flatten(), nn.Linear(128, 2))
    if args.distributed:
        model = DDP(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(args.epochs):
        if args.distributed:
            sampler.set_epoch(epoch)
        loss, accuracy = train_one_epoch(model, loader, optimizer, args)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss:.4f} accuracy {accuracy:.3f}")
    if args.distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
