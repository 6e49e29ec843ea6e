"""Classify small images in the manner of the PyTorch ImageNet example. One device."""

import argparse
import shutil

import torch
import torch.nn as nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser(description="ImageNet-like training")
parser.add_argument("--epochs", default=3, type=int)
parser.add_argument("-b", "--batch-size", default=48, type=int)
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
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(768, 6))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=args.wd)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.5)
    train_loader = DataLoader(image_folder(384, 0), batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(image_folder(100, 1), batch_size=args.batch_size, shuffle=False)
    for epoch in range(args.epochs):
        train(train_loader, model, criterion, optimizer, epoch)
        acc1 = validate(val_loader, model, criterion)
        scheduler.step()
        is_best = acc1 > best_acc1
        best_acc1 = max(acc1, best_acc1)
        save_checkpoint({"epoch": epoch + 1, "state_dict": model.state_dict(), "best_acc1": best_acc1}, is_best)


def train(loader, model, criterion, optimizer, epoch):
    losses = AverageMeter("Loss", ":.4e")
    model.train()
    for images, target in loader:
        loss = criterion(model(images), target)
        losses.update(loss.item(), images.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"Epoch: [{epoch}] Loss {losses.avg:.4e}")


def validate(loader, model, criterion):
    losses, top1 = AverageMeter("Loss", ":.4e"), AverageMeter("Acc@1", ":6.2f")
    model.eval()
    with torch.no_grad():
        for images, target in loader:
            output = model(images)
            losses.update(criterion(output, target).item(), images.size(0))
            top1.update(100.0 * (output.argmax(1) == target).double().mean().item(), images.size(0))
    print(f" *   Acc@1 {top1.avg:.3f} Val loss {losses.avg:.5f}")
    return top1.avg


def save_checkpoint(state, is_best, filename="checkpoint.pth.tar"):
    torch.save(state, filename)
    if is_best:
        shutil.copyfile(filename, "model_best.pth.tar")


if __name__ == "__main__":
    main_worker(parser.parse_args())
