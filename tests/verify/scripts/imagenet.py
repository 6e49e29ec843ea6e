"""In the style of PyTorch's imagenet example: main_worker, AverageMeter, all_reduce of meters; started by torchrun."""

import argparse
import os
import shutil

import torch
import torch.distributed as dist
from torch import nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Subset, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--arch", default="small")
parser.add_argument("--epochs", default=3, type=int)
parser.add_argument("--batch-size", default=24, type=int, help="total over all ranks")
parser.add_argument("--lr", default=0.1, type=float)
parser.add_argument("--print-freq", default=5, type=int)
parser.add_argument("--gpu", default=None, type=int)
best_acc1 = 0


def main():
    args = parser.parse_args()
    args.world_size = int(os.environ["WORLD_SIZE"])
    args.distributed = args.world_size > 1
    main_worker(args.gpu, 1, args)


def main_worker(gpu, ngpus_per_node, args):
    global best_acc1
    args.gpu = gpu
    if args.distributed:
        args.rank = int(os.environ["RANK"])
        dist.init_process_group(backend="gloo", world_size=args.world_size, rank=args.rank)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 3))
    if args.distributed:
        args.batch_size = int(args.batch_size / args.world_size)
        model = nn.parallel.DistributedDataParallel(model)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.5)
    generator = torch.Generator().manual_seed(1)
    images = TensorDataset(
        torch.randn(336, 1, 8, 8, generator=generator), torch.randint(0, 3, (336,), generator=generator)
    )
    train_dataset, val_dataset = Subset(images, range(288)), Subset(images, range(288, 336))
    train_sampler = torch.utils.data.distributed.DistributedSampler(train_dataset) if args.distributed else None
    val_sampler = None
    if args.distributed:
        val_sampler = torch.utils.data.distributed.DistributedSampler(val_dataset, shuffle=False, drop_last=True)
    train_loader = DataLoader(train_dataset, args.batch_size, shuffle=train_sampler is None, sampler=train_sampler)
    val_loader = DataLoader(val_dataset, args.batch_size, shuffle=False, sampler=val_sampler)

    for epoch in range(args.epochs):
        if args.distributed:
            train_sampler.set_epoch(epoch)
        train(train_loader, model, criterion, optimizer, epoch, args)
        acc1 = validate(val_loader, model, criterion, args)
        scheduler.step()
        is_best = acc1 > best_acc1
        best_acc1 = max(acc1, best_acc1)
        if not args.distributed or args.rank == 0:
            save_checkpoint({"epoch": epoch + 1, "arch": args.arch, "state_dict": model.state_dict()}, is_best)
    if args.distributed:
        dist.destroy_process_group()


def train(train_loader, model, criterion, optimizer, epoch, args):
    losses = AverageMeter("Loss")
    model.train()
    for i, (images, target) in enumerate(train_loader):
        output = model(images)
        loss = criterion(output, target)
        losses.update(loss.item(), images.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % args.print_freq == 0:
            print(f"Epoch: [{epoch}][{i}/{len(train_loader)}] {losses}")


def validate(val_loader, model, criterion, args):
    top1 = AverageMeter("Acc@1")
    model.eval()
    with torch.no_grad():
        for images, target in val_loader:
            output = model(images)
            top1.update((output.argmax(1) == target).float().mean().item(), images.size(0))
    if args.distributed:
        top1.all_reduce()
    print(f" * {top1}")
    return top1.avg


class AverageMeter:
    def __init__(self, name):
        self.name, self.sum, self.count, self.avg = name, 0.0, 0, 0.0

    def update(self, val, n=1):
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def all_reduce(self):
        total = torch.tensor([self.sum, self.count], dtype=torch.float32)
        dist.all_reduce(total, dist.ReduceOp.SUM, async_op=False)
        self.sum, self.count = total.tolist()
        self.avg = self.sum / self.count

    def __str__(self):
        return f"{self.name} {self.avg:.4f}"


def save_checkpoint(state, is_best, filename="checkpoint.pth.tar"):
    torch.save(state, filename)
    if is_best:
        shutil.copyfile(filename, "model_best.pth.tar")


if __name__ == "__main__":
    main()
