"""Train one of several small convnets from a registry, in the manner of an image-model library.

zoo: faulty
faults: F56
silent: yes
args: --model tiny_resnet --batch-size 4
"""

import argparse
import logging

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as NativeDDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

_logger = logging.getLogger("train")
_entrypoints = {}


def register_model(fn):
    _entrypoints[fn.__name__] = fn
    return fn


class BasicBlock(nn.Module):
    def __init__(self, channels, norm_layer):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = norm_layer(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = norm_layer(channels)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.act(self.bn1(self.conv1(x)))
        return self.act(self.bn2(self.conv2(y)) + x)


@register_model
def tiny_resnet(num_classes, width=8):
    norm_layer = nn.BatchNorm2d  # fault
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1, bias=False),
        norm_layer(width),
        nn.ReLU(inplace=True),
        BasicBlock(width, norm_layer),
        nn.AvgPool2d(2),
        BasicBlock(width, norm_layer),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, num_classes),
    )


@register_model
def tiny_patches(num_classes, width=16):
    return nn.Sequential(nn.Conv2d(3, width, 4, stride=4), nn.GELU(), nn.Flatten(), nn.Linear(4 * width, num_classes))


def create_model(name, **kwargs):
    return _entrypoints[name](**kwargs)


def create_dataset(n=160, classes=4):
    y = torch.arange(n) % classes
    x = torch.randn(n, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    x[torch.arange(n), y % 3, :, y * 2] += 2.0
    return TensorDataset(x, y)


def main():
    parser = argparse.ArgumentParser(description="Training")
    parser.add_argument("--model", default="tiny_resnet", choices=sorted(_entrypoints))
    parser.add_argument("-b", "--batch-size", type=int, default=4, help="of each device")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    logging.basicConfig(level=logging.INFO if dist.get_rank() == 0 else logging.WARNING, format="%(message)s")
    torch.manual_seed(42 + dist.get_rank())
    dataset = create_dataset()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    model = NativeDDP(create_model(args.model, num_classes=4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=2e-5)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        _logger.info("Train: %d loss %.4f", epoch, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
