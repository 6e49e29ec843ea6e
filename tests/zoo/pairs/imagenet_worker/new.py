"""Classify small images in the manner of the PyTorch ImageNet example. Launched by torchrun."""

import argparse
import os
import shutil

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser(description="ImageNet-like training")
parser.add_argument("--epochs", default=3, type=int)
parser.add_argument("-b", "--batch-size", default=48, type=int, help="total of all processes")
parser.add_argument("--lr", default=0.05, type=float)
parser.add_argument("--wd", default=1e-4, type=float)
best_acc1 = 0.0


class AverageMeter:
    def __init__(self, name, fmt=":f"):
        self.name, self.fmt = name, fmt
        self.sum = self.count = 0.0

    def update(self, val, n=1):
        self.sum += val * n
        self.count += n

    def all_reduce(self):
        total = torch.tensor([self.sum, self.count], dtype=torch.float64)
        dist.all_reduce(total, dist.ReduceOp.SUM)
        self.sum, self.count = total.tolist()

    @property
    def avg(self):
        return self.sum / self.count


def image_folder(n, seed):
    g = torch.Generator().manual_seed(seed)
    target = torch.randint(0, 6, (n,), generator=g)
    images = torch.randn(n, 3, 8, 8, generator=g)
    images[torch.arange(n), target % 3, target] += 1.5
    return TensorDataset(images, target)


def main_worker(args):
    global best_acc1
    args.rank, args.world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(backend="gloo", init_method="env://")
    args.batch_size = args.batch_size // args.world_size
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(768, 6))
    model = nn.parallel.DistributedDataParallel(model)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=args.wd)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.5)
    train_dataset, val_dataset = image_folder(384, 0), image_folder(100, 1)
    train_sampler = DistributedSampler(train_dataset)
    val_sampler = DistributedSampler(val_dataset, shuffle=False, drop_last=True)
    train_loader = DataLoader(train_dataset, batch_size=args.batch_size, sampler=train_sampler)
    val_loader = DataLoader(val_dataset, batch_size=args.batch_size, sampler=val_sampler)
    for epoch in range(args.epochs):
        train_sampler.set_epoch(epoch)
        train(train_loader, model, criterion, optimizer, epoch, args)
        acc1 = validate(val_loader, model, criterion, args)
        scheduler.step()
        is_best = acc1 > best_acc1
        best_acc1 = max(acc1, best_acc1)
        if args.rank == 0:
            state = {"epoch": epoch + 1, "state_dict": model.module.state_dict(), "best_acc1": best_acc1}
            save_checkpoint(state, is_best)


def train(loader, model, criterion, optimizer, epoch, args):
    losses = AverageMeter("Loss", ":.4e")
    model.train()
    for images, target in loader:
        loss = criterion(model(images), target)
        losses.update(loss.item(), images.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    losses.all_reduce()
    if args.rank == 0:
        print(f"Epoch: [{epoch}] Loss {losses.avg:.4e}")


def validate(loader, model, criterion, args):
    losses, top1 = AverageMeter("Loss", ":.4e"), AverageMeter("Acc@1", ":6.2f")

    def run_validate(loader):
        with torch.no_grad():
            for images, target in loader:
                output = model(images)
                losses.update(criterion(output, target).item(), images.size(0))
                top1.update(100.0 * (output.argmax(1) == target).double().mean().item(), images.size(0))

    model.eval()
    run_validate(loader)
    losses.all_reduce()
    top1.all_reduce()
    covered = len(loader.sampler) * args.world_size
    if covered < len(loader.dataset):
        rest = Subset(loader.dataset, range(covered, len(loader.dataset)))
        run_validate(DataLoader(rest, batch_size=args.batch_size))
    if args.rank == 0:
        print(f" *   Acc@1 {top1.avg:.3f} Val loss {losses.avg:.5f}")
    return top1.avg


def save_checkpoint(state, is_best, filename="checkpoint.pth.tar"):
    torch.save(state, filename)
    if is_best:
        shutil.copyfile(filename, "model_best.pth.tar")


if __name__ == "__main__":
    main_worker(parser.parse_args())
    dist.destroy_process_group()
