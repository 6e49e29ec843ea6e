"""Train an object counter with the device that the launcher gives on the command line.

zoo: faulty
faults: F109, F105
silent: no
observable: no, there is no device to choose on CPU
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


def get_args():
    parser = argparse.ArgumentParser("counting")
    parser.add_argument("--local_rank", type=int, default=0)  # fault
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=12)
    parser.add_argument("--lr", type=float, default=2e-3)
    return parser.parse_args()


class Dots(Dataset):
    def __init__(self, n=240, size=14):
        g = torch.Generator().manual_seed(74)
        self.count = torch.randint(0, 8, (n,), generator=g)
        self.image = torch.zeros(n, 1, size, size)
        for i, k in enumerate(self.count.tolist()):
            cells = torch.randperm(size * size, generator=g)[:k]
            self.image[i].view(-1)[cells] = 1.0
        self.image += 0.05 * torch.randn(n, 1, size, size, generator=g)

    def __len__(self):
        return len(self.count)

    def __getitem__(self, i):
        return self.image[i], self.count[i].float()


class DensityNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 10, 3, padding=1), nn.ReLU(), nn.Conv2d(10, 1, 1), nn.Softplus())

    def forward(self, image):
        return self.net(image).sum((1, 2, 3)) / 10


def main():
    args = get_args()
    if torch.cuda.is_available():
        torch.cuda.set_device(args.local_rank)
        device = torch.device("cuda", args.local_rank)
        dist.init_process_group("nccl", init_method="env://")
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo", init_method="env://")
    dataset = Dots()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, args.batch_size, sampler=sampler)
    model = DensityNet().to(device)
    if device.type == "cuda":
        model = DDP(model, device_ids=[args.local_rank], output_device=args.local_rank)
    else:
        model = DDP(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for image, count in loader:
            loss = nn.functional.smooth_l1_loss(model(image.to(device)), count.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
