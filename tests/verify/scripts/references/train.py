"""In the style of torchvision's references: several files, argparse, MetricLogger, evaluation and checkpoints."""

import argparse
from pathlib import Path

import presets
import torch
import utils
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, count, seed, transform):
        generator = torch.Generator().manual_seed(seed)
        self.images = torch.randn(count, 1, 8, 8, generator=generator)
        self.labels = torch.randint(0, 3, (count,), generator=generator)
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.transform(self.images[index]), self.labels[index]


def train_one_epoch(model, criterion, optimizer, data_loader, epoch, args, model_ema=None):
    model.train()
    metric_logger = utils.MetricLogger()
    for image, target in metric_logger.log_every(data_loader, args.print_freq, f"Epoch: [{epoch}]"):
        output = model(image)
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        if args.clip_grad_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), args.clip_grad_norm)
        optimizer.step()
        metric_logger.update(loss=loss, lr=optimizer.param_groups[0]["lr"])


def evaluate(model, criterion, data_loader):
    model.eval()
    metric_logger = utils.MetricLogger()
    samples = 0
    with torch.inference_mode():
        for image, target in metric_logger.log_every(data_loader, 100, "Test:"):
            output = model(image)
            hits = (output.argmax(1) == target).float().mean()
            metric_logger.meters["loss"].update(criterion(output, target).item(), n=len(image))
            metric_logger.meters["acc1"].update(hits.item(), n=len(image))
            samples += len(image)
    samples = utils.reduce_across_processes(samples)
    metric_logger.synchronize_between_processes()
    print(f"Test: Acc@1 {metric_logger.meters['acc1'].global_avg:.3f} of {int(samples)}")


def main(args):
    utils.init_distributed_mode(args)
    torch.manual_seed(args.seed)
    train = Images(288, 0, presets.ClassificationPresetTrain())
    test = Images(48, 1, presets.ClassificationPresetEval())
    if args.distributed:
        train_sampler = torch.utils.data.distributed.DistributedSampler(train)
        test_sampler = torch.utils.data.distributed.DistributedSampler(test, shuffle=False)
    else:
        train_sampler = torch.utils.data.RandomSampler(train)
        test_sampler = torch.utils.data.SequentialSampler(test)
    data_loader = DataLoader(train, args.batch_size, sampler=train_sampler, num_workers=args.workers)
    data_loader_test = DataLoader(test, args.batch_size, sampler=test_sampler, num_workers=args.workers)

    norm = nn.SyncBatchNorm if args.norm == "sync" else nn.BatchNorm2d
    model = nn.Sequential(nn.Conv2d(1, 8, 3), norm(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 3))
    model_without_ddp = model
    if args.distributed:
        model = nn.parallel.DistributedDataParallel(model)
        model_without_ddp = model.module
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4, nesterov=True)
    main_lr = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=1)
    lr_scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, main_lr], milestones=[1])

    for epoch in range(args.epochs):
        if args.distributed:
            train_sampler.set_epoch(epoch)
        train_one_epoch(model, criterion, optimizer, data_loader, epoch, args)
        lr_scheduler.step()
        evaluate(model, criterion, data_loader_test)
        if args.output_dir:
            checkpoint = {"model": model_without_ddp.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            utils.save_on_master(checkpoint, Path(args.output_dir) / "checkpoint.pth")
    if args.distributed:
        torch.distributed.destroy_process_group()


def get_args_parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("-b", "--batch-size", default=8, type=int)
    parser.add_argument("--epochs", default=3, type=int)
    parser.add_argument("-j", "--workers", default=0, type=int)
    parser.add_argument("--lr", default=0.1, type=float)
    parser.add_argument("--norm", default="batch")
    parser.add_argument("--clip-grad-norm", default=None, type=float)
    parser.add_argument("--print-freq", default=10, type=int)
    parser.add_argument("--seed", default=0, type=int)
    parser.add_argument("--output-dir", default="")
    return parser


if __name__ == "__main__":
    main(get_args_parser().parse_args())
