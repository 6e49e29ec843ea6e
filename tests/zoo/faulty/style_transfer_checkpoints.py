"""Train a fast style network on a content and a style loss, with a checkpoint every few batches.

zoo: faulty
faults: F45
silent: yes
observable: no, without CUDA no parameter moves
args: --checkpoint-interval 4
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Pictures(Dataset):
    def __len__(self):
        return 160

    def __getitem__(self, i):
        return torch.rand(3, 16, 16, generator=torch.Generator().manual_seed(i))


class TransformerNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.InstanceNorm2d(width, affine=True),
            nn.ReLU(),
            nn.Conv2d(width, 3, 3, padding=1),
        )

    def forward(self, x):
        return x + self.layers(x)


class Features(nn.Module):
    """A fixed random filter bank in place of VGG."""

    def __init__(self):
        super().__init__()
        g = torch.Generator().manual_seed(0)
        self.register_buffer("filters", torch.randn(8, 3, 3, 3, generator=g) / 5)

    def forward(self, x):
        return torch.relu(nn.functional.conv2d(x, self.filters))


def gram_matrix(y):
    b, ch, h, w = y.size()
    features = y.view(b, ch, w * h)
    return features.bmm(features.transpose(1, 2)) / (ch * h * w)


def train(args):
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dataset = Pictures()
    sampler = DistributedSampler(dataset)
    train_loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler)
    transformer = DDP(TransformerNet().to(device))
    optimizer = torch.optim.Adam(transformer.parameters(), args.lr)
    vgg = Features().to(device)
    style = torch.linspace(0, 1, 16).expand(1, 3, 16, 16).to(device)
    gram_style = gram_matrix(vgg(style))
    for e in range(args.epochs):
        sampler.set_epoch(e)
        transformer.train()
        for batch_id, x in enumerate(train_loader):
            x = x.to(device)
            y = transformer(x)
            features_y, features_x = vgg(y), vgg(x)
            content_loss = nn.functional.mse_loss(features_y, features_x)
            style_loss = (gram_matrix(features_y) - gram_style).pow(2).sum((1, 2)).mean()
            total_loss = content_loss + args.style_weight * style_loss
            optimizer.zero_grad()
            total_loss.backward()
            optimizer.step()
            if (batch_id + 1) % args.checkpoint_interval == 0:
                transformer.eval().cpu()  # fault
                if rank == 0:
                    torch.save(transformer.module.state_dict(), f"ckpt_epoch_{e}_batch_{batch_id + 1}.pth")
                transformer.to(device).train()  # fault
        if rank == 0:
            print(f"Epoch {e + 1}:\tcontent: {content_loss.item():.6f}\tstyle: {style_loss.item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="parser for fast-neural-style")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--style-weight", type=float, default=10.0)
    parser.add_argument("--checkpoint-interval", type=int, default=2000)
    train(parser.parse_args())
