"""Resume a run with a step schedule, in the style of the torchvision references.

zoo: faulty
faults: F95
silent: yes
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.utils.data
from torch import nn


def is_main_process():
    return int(os.environ["RANK"]) == 0


def save_on_master(*args):
    if is_main_process():
        torch.save(*args)


def train_one_epoch(model, criterion, optimizer, loader, epoch):
    model.train()
    meter = torch.zeros(2)
    for image, target in loader:
        output = model(image)
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meter += torch.tensor([loss.item() * len(image), len(image)])
    dist.barrier()
    dist.all_reduce(meter)
    if is_main_process():
        lr = optimizer.param_groups[0]["lr"]
        print(f"Epoch: [{epoch}] lr: {lr:.4f} loss: {meter[0] / meter[1]:.4f}")


def run(args, dataset, epochs):
    sampler = torch.utils.data.distributed.DistributedSampler(dataset)
    loader = torch.utils.data.DataLoader(dataset, batch_size=args.batch_size, sampler=sampler)
    model = nn.Sequential(nn.Flatten(), nn.Linear(27, 32), nn.ReLU(), nn.Linear(32, 3))
    model = nn.parallel.DistributedDataParallel(model)
    model_without_ddp = model.module
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    lr_scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.3)
    start_epoch = 0
    if os.path.exists(args.resume):
        checkpoint = torch.load(args.resume, map_location="cpu")
        model_without_ddp.load_state_dict(checkpoint["model"])
        start_epoch = checkpoint["epoch"] + 1
        if is_main_process():
            optimizer.load_state_dict(checkpoint["optimizer"])  # fault
            lr_scheduler.load_state_dict(checkpoint["lr_scheduler"])  # fault
    dist.barrier()
    for epoch in range(start_epoch, epochs):
        sampler.set_epoch(epoch)
        train_one_epoch(model, criterion, optimizer, loader, epoch)
        lr_scheduler.step()
        checkpoint = {
            "model": model_without_ddp.state_dict(),
            "optimizer": optimizer.state_dict(),
            "lr_scheduler": lr_scheduler.state_dict(),
            "epoch": epoch,
        }
        save_on_master(checkpoint, args.resume)
        dist.barrier()


def main(args):
    dist.init_process_group("gloo")
    target = torch.arange(360) % 3
    image = torch.randn(360, 3, 3, 3, generator=torch.Generator().manual_seed(4)) + target.view(-1, 1, 1, 1) / 2
    dataset = torch.utils.data.TensorDataset(image, target)
    for epochs in (2, 4):
        run(args, dataset, epochs)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Training")
    parser.add_argument("--batch-size", default=15, type=int)
    parser.add_argument("--lr", default=0.1, type=float)
    parser.add_argument("--resume", default="checkpoint.pth")
    main(parser.parse_args())
