"""Train a classifier in the manner of the torchvision references. One device."""

import argparse
import os

import torch
import torch.utils.data
import utils
from torch import nn


def train_one_epoch(model, criterion, optimizer, lr_scheduler, data_loader, epoch, args):
    model.train()
    metric_logger = utils.MetricLogger()
    for image, target in metric_logger.log_every(data_loader, args.print_freq, f"Epoch: [{epoch}]"):
        output = model(image)
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), args.clip_grad_norm)
        optimizer.step()
        lr_scheduler.step()
        metric_logger.meters["loss"].update(loss.item(), len(image))


def evaluate(model, criterion, data_loader):
    model.eval()
    metric_logger = utils.MetricLogger()
    with torch.inference_mode():
        for image, target in metric_logger.log_every(data_loader, 100, "Test:"):
            output = model(image)
            acc1, acc2 = utils.accuracy(output, target, topk=(1, 2))
            metric_logger.meters["loss"].update(criterion(output, target).item(), len(image))
            metric_logger.meters["acc1"].update(acc1, len(image))
            metric_logger.meters["acc2"].update(acc2, len(image))
    print(f"Test:  Acc@1 {metric_logger.meters['acc1'].global_avg:.3f} {metric_logger}")


def load_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    target = torch.randint(0, 5, (n,), generator=g)
    angle = target * 0.6 + 0.2 * torch.randn(n, generator=g)
    grid = torch.linspace(-2, 2, 10)
    wave = (angle.cos()[:, None, None] * grid + angle.sin()[:, None, None] * grid[:, None]).mul(3).sin()
    return torch.utils.data.TensorDataset(wave[:, None] + 0.3 * torch.randn(n, 1, 10, 10, generator=g), target)


def main(args):
    os.makedirs(args.output_dir, exist_ok=True)
    torch.manual_seed(args.seed)
    dataset, dataset_test = load_data(480, 0), load_data(150, 1)
    data_loader = torch.utils.data.DataLoader(dataset, args.batch_size, shuffle=True, drop_last=True)
    data_loader_test = torch.utils.data.DataLoader(dataset_test, args.batch_size)
    model = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2), nn.GELU(), nn.Flatten(), nn.Linear(128, 5))
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    iters = len(data_loader)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=args.lr_warmup_iters)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs * iters - args.lr_warmup_iters)
    lr_scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, cosine], [args.lr_warmup_iters])
    for epoch in range(args.epochs):
        train_one_epoch(model, criterion, optimizer, lr_scheduler, data_loader, epoch, args)
        evaluate(model, criterion, data_loader_test)
        checkpoint = {"model": model.state_dict(), "lr_scheduler": lr_scheduler.state_dict(), "epoch": epoch}
        utils.save_on_master(checkpoint, os.path.join(args.output_dir, f"model_{epoch}.pth"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Classification")
    parser.add_argument("-b", "--batch-size", default=32, type=int)
    parser.add_argument("--epochs", default=3, type=int)
    parser.add_argument("--lr", default=0.1, type=float)
    parser.add_argument("--lr-warmup-iters", default=10, type=int)
    parser.add_argument("--clip-grad-norm", default=1.0, type=float)
    parser.add_argument("--print-freq", default=10, type=int)
    parser.add_argument("--seed", default=0, type=int)
    parser.add_argument("--output-dir", default=".")
    main(parser.parse_args())
