"""Train a pose network with synchronized batch norm on GPUs, in plain functions.

zoo: faulty
faults: F54
silent: yes
observable: no, layers are converted only on a machine with CUDA
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Poses(Dataset):
    def __init__(self, n=192, joints=4, size=16):
        g = torch.Generator().manual_seed(13)
        self.joints = torch.randint(2, size - 2, (n, joints, 2), generator=g)
        axis = torch.arange(size)
        rows = torch.exp(-((axis - self.joints[..., :1]) ** 2) / 4.0)
        cols = torch.exp(-((axis - self.joints[..., 1:]) ** 2) / 4.0)
        self.heatmaps = rows.unsqueeze(-1) * cols.unsqueeze(-2)

    def __len__(self):
        return len(self.joints)

    def __getitem__(self, i):
        noise = 0.1 * torch.randn(1, 16, 16, generator=torch.Generator().manual_seed(i))
        return self.heatmaps[i].max(0, keepdim=True).values + noise, self.heatmaps[i]


def conv_bn_relu(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


def create_model(joints=4):
    return nn.Sequential(conv_bn_relu(1, 12), conv_bn_relu(12, 12), nn.Conv2d(12, joints, 1))


def setup(args):
    args.rank, args.gpu = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    args.cuda = torch.cuda.is_available()
    if args.cuda:
        torch.cuda.set_device(args.gpu)
    dist.init_process_group("nccl" if args.cuda else "gloo")
    return torch.device("cuda", args.gpu) if args.cuda else torch.device("cpu")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--no-sync-bn", dest="sync_bn", action="store_false")
    args = parser.parse_args()
    device = setup(args)
    model = create_model().to(device)
    model = DDP(model, device_ids=[args.gpu] if args.cuda else None)
    if args.sync_bn and args.cuda:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # fault
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    data = Poses()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=args.batch, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for image, heatmap in loader:
            loss = nn.functional.mse_loss(model(image.to(device)), heatmap.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if args.rank == 0:
            print(f"epoch {epoch}: heat map error {loss.item():.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
