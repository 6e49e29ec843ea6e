"""Train a segmentation net in the style of the torchvision references, with a synchronized metric logger.

zoo: correct
args: --epochs 2 --output-dir out
"""

import argparse
import os
from collections import defaultdict, deque

import torch
import torch.distributed as dist
import torch.utils.data
from torch import nn


class SmoothedValue:
    def __init__(self, window_size=20):
        self.deque, self.total, self.count = deque(maxlen=window_size), 0.0, 0

    def update(self, value, n=1):
        self.deque.append(value)
        self.count += n
        self.total += value * n

    def synchronize_between_processes(self):
        t = torch.tensor([self.count, self.total], dtype=torch.float64)
        dist.barrier()
        dist.all_reduce(t)
        self.count, self.total = int(t[0]), t[1].item()

    @property
    def global_avg(self):
        return self.total / self.count


class MetricLogger:
    def __init__(self):
        self.meters = defaultdict(SmoothedValue)

    def update(self, n=1, **kwargs):
        for k, v in kwargs.items():
            self.meters[k].update(v, n)

    def synchronize_between_processes(self):
        for meter in self.meters.values():
            meter.synchronize_between_processes()

    def __str__(self):
        return "  ".join(f"{name}: {meter.global_avg:.4f}" for name, meter in self.meters.items())


def is_main_process():
    return int(os.environ["RANK"]) == 0


def get_dataset(n, seed):
    g = torch.Generator().manual_seed(seed)
    mask = torch.nn.functional.interpolate((torch.rand(n, 1, 3, 3, generator=g) > 0.5).float(), scale_factor=4)
    return torch.utils.data.TensorDataset(mask + 0.7 * torch.randn(n, 1, 12, 12, generator=g), mask.squeeze(1).long())


def train_one_epoch(model, criterion, optimizer, loader, lr_scheduler, epoch):
    model.train()
    logger = MetricLogger()
    for image, target in loader:
        loss = criterion(model(image), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        lr_scheduler.step()
        logger.update(n=len(image), loss=loss.item(), lr=optimizer.param_groups[0]["lr"])
    logger.synchronize_between_processes()
    if is_main_process():
        print(f"Epoch: [{epoch}]  {logger}")


def evaluate(model, loader):
    model.eval()
    confusion = torch.zeros(2, 2, dtype=torch.int64)
    with torch.inference_mode():
        for image, target in loader:
            pred = model(image).argmax(1)
            confusion += torch.bincount(2 * target.flatten() + pred.flatten(), minlength=4).view(2, 2)
    dist.all_reduce(confusion)
    iou = confusion.diag() / (confusion.sum(0) + confusion.sum(1) - confusion.diag())
    if is_main_process():
        print(f"Test: mean IoU {100 * iou.mean():.2f} over {int(confusion.sum())} pixels")


def main(args):
    dist.init_process_group("gloo")
    if args.output_dir and is_main_process():
        os.makedirs(args.output_dir, exist_ok=True)
    dataset, dataset_test = get_dataset(320, 0), get_dataset(64, 1)
    train_sampler = torch.utils.data.distributed.DistributedSampler(dataset)
    test_sampler = torch.utils.data.distributed.DistributedSampler(dataset_test, shuffle=False)
    loader = torch.utils.data.DataLoader(dataset, args.batch_size, sampler=train_sampler, drop_last=True)
    loader_test = torch.utils.data.DataLoader(dataset_test, args.batch_size, sampler=test_sampler)
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 3, padding=1))
    model = nn.parallel.DistributedDataParallel(model)
    model_without_ddp = model.module
    optimizer = torch.optim.SGD(model_without_ddp.parameters(), lr=args.lr, momentum=0.9)
    iterations = args.epochs * len(loader)
    lr_scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=iterations, power=0.9)
    for epoch in range(args.epochs):
        train_sampler.set_epoch(epoch)
        train_one_epoch(model, nn.CrossEntropyLoss(), optimizer, loader, lr_scheduler, epoch)
        evaluate(model, loader_test)
        if args.output_dir and is_main_process():
            torch.save({"model": model_without_ddp.state_dict()}, os.path.join(args.output_dir, f"model_{epoch}.pth"))
    dist.destroy_process_group()


if __name__ == "__main__":
    p = argparse.ArgumentParser(description="Segmentation")
    p.add_argument("-b", "--batch-size", default=10, type=int)
    p.add_argument("--epochs", default=30, type=int)
    p.add_argument("--lr", default=0.1, type=float)
    p.add_argument("--output-dir", default=".")
    main(p.parse_args())
