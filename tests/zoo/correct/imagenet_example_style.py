"""Train a classifier in the style of the PyTorch ImageNet example, with its auxiliary validation loader.

zoo: correct
args: --epochs 2 -b 32
"""

import argparse
import os
import shutil

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.parallel
import torch.optim
import torch.utils.data
import torch.utils.data.distributed
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import Subset, TensorDataset

parser = argparse.ArgumentParser(description="PyTorch Training")
parser.add_argument("--epochs", default=90, type=int)
parser.add_argument("-b", "--batch-size", default=256, type=int, help="total batch size of all ranks")
parser.add_argument("--lr", default=0.1, type=float)
best_acc1 = 0


class AverageMeter:
    def __init__(self, name):
        self.name, self.sum, self.count = name, 0.0, 0

    def update(self, val, n=1):
        self.sum += val * n
        self.count += n

    def all_reduce(self):
        total = torch.tensor([self.sum, self.count], dtype=torch.float32)
        dist.all_reduce(total, dist.ReduceOp.SUM, async_op=False)
        self.sum, self.count = total.tolist()

    @property
    def avg(self):
        return self.sum / self.count


def folder(n, seed):
    target = torch.arange(n) % 8
    images = torch.randn(n, 3, 4, 4, generator=torch.Generator().manual_seed(seed))
    images[torch.arange(n), target % 3, target // 3] += 2
    return TensorDataset(images, target)


def train(loader, model, criterion, optimizer, epoch):
    losses = AverageMeter("Loss")
    model.train()
    for images, target in loader:
        loss = criterion(model(images), target)
        losses.update(loss.item(), images.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    losses.all_reduce()
    if dist.get_rank() == 0:
        print(f"Epoch: [{epoch}] Loss {losses.avg:.4f}")


def validate(loader, model, args):
    top1 = AverageMeter("Acc@1")

    def run_validate(loader):
        with torch.no_grad():
            for images, target in loader:
                correct = (model(images).argmax(1) == target).float().mean() * 100
                top1.update(correct.item(), images.size(0))

    model.eval()
    run_validate(loader)
    top1.all_reduce()
    if len(loader.sampler) * args.world_size < len(loader.dataset):
        aux = Subset(loader.dataset, range(len(loader.sampler) * args.world_size, len(loader.dataset)))
        run_validate(torch.utils.data.DataLoader(aux, batch_size=args.batch_size, shuffle=False))
    return top1.avg, top1.count


def main():
    global best_acc1
    args = parser.parse_args()
    dist.init_process_group("gloo")
    args.rank, args.world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    args.batch_size = args.batch_size // args.world_size
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 8))
    model = nn.parallel.DistributedDataParallel(model)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = StepLR(optimizer, step_size=30, gamma=0.1)
    train_set, val_set = folder(640, 0), folder(161, 1)
    train_sampler = torch.utils.data.distributed.DistributedSampler(train_set)
    val_sampler = torch.utils.data.distributed.DistributedSampler(val_set, shuffle=False, drop_last=True)
    train_loader = torch.utils.data.DataLoader(train_set, batch_size=args.batch_size, sampler=train_sampler)
    val_loader = torch.utils.data.DataLoader(val_set, batch_size=args.batch_size, sampler=val_sampler)
    for epoch in range(args.epochs):
        train_sampler.set_epoch(epoch)
        train(train_loader, model, criterion, optimizer, epoch)
        acc1, count = validate(val_loader, model, args)
        scheduler.step()
        is_best, best_acc1 = acc1 > best_acc1, max(acc1, best_acc1)
        if args.rank == 0:
            print(f" *   Acc@1 {acc1:.3f} on {count:.0f} images")
            torch.save({"epoch": epoch + 1, "state_dict": model.module.state_dict()}, "checkpoint.pth.tar")
            if is_best:
                shutil.copyfile("checkpoint.pth.tar", "model_best.pth.tar")


if __name__ == "__main__":
    main()
