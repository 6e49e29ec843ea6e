"""Train a super-resolution net in two runs, the second from the checkpoint of the first.

zoo: faulty
faults: F98
silent: no
observable: no, tensors are saved from a GPU only on a machine with CUDA
"""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

CUDA = torch.cuda.is_available()


class Patches(Dataset):
    def __len__(self):
        return 224

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        sharp = nn.functional.interpolate(torch.rand(1, 1, 4, 4, generator=g), size=16, mode="nearest")[0]
        return nn.functional.avg_pool2d(sharp, 2), sharp


class Upscaler(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.PReLU(), nn.Conv2d(width, 4, 3, padding=1))
        self.shuffle = nn.PixelShuffle(2)

    def forward(self, x):
        return self.shuffle(self.body(x) + x)


def run(path, epochs, device):
    net = Upscaler().to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    first = 0
    if path.endswith(".resume"):
        path = path.removesuffix(".resume")
        checkpoint = torch.load(path)  # fault
        net.load_state_dict(checkpoint["net"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        first = checkpoint["epoch"] + 1
    net = DDP(net, device_ids=[device] if CUDA else None)
    dataset = Patches()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=14, sampler=sampler)
    for epoch in range(first, epochs):
        sampler.set_epoch(epoch)
        for small, sharp in loader:
            loss = nn.functional.l1_loss(net(small.to(device)), sharp.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: l1 {loss.item():.4f}")
            state = {"net": net.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            torch.save(state, path)
    dist.barrier()


def main():
    device = torch.device("cpu")
    if CUDA:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if CUDA else "gloo")
    run("upscaler.pt", 1, device)
    run("upscaler.pt.resume", 3, device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
