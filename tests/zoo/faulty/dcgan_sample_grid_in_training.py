"""Train a small convolutional GAN with synchronized batch norm and sample a grid after each epoch.

zoo: faulty
faults: F60
silent: no
observable: no, batch norm waits for the other ranks only on a machine with CUDA
"""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

nz, ngf = 12, 8


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, 2 * ngf, 4, bias=False),
            nn.BatchNorm2d(2 * ngf),
            nn.ReLU(True),
            nn.ConvTranspose2d(2 * ngf, 1, 4, stride=2, padding=1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, ngf, 4, stride=2, padding=1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(16 * ngf, 1)
        )

    def forward(self, x):
        return self.main(x).squeeze(1)


def crosses(n=384):
    g = torch.Generator().manual_seed(0)
    x = -torch.ones(n, 1, 8, 8)
    at = torch.randint(1, 7, (n, 2), generator=g)
    x[torch.arange(n), 0, at[:, 0]] = 1.0
    x[torch.arange(n), 0, :, at[:, 1]] = 1.0
    return TensorDataset(x)


def wrap(net, device, local_rank):
    net = net.to(device)
    if device.type == "cuda":
        net = nn.SyncBatchNorm.convert_sync_batchnorm(net)
        return DDP(net, device_ids=[local_rank])
    return DDP(net)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")
    dist.init_process_group("nccl" if cuda else "gloo")
    rank = dist.get_rank()
    torch.manual_seed(5 + rank)
    netG, netD = wrap(Generator(), device, local_rank), wrap(Discriminator(), device, local_rank)
    optG = torch.optim.Adam(netG.parameters(), lr=1e-3, betas=(0.5, 0.999))
    optD = torch.optim.Adam(netD.parameters(), lr=1e-3, betas=(0.5, 0.999))
    bce = nn.BCEWithLogitsLoss()
    fixed_noise = torch.randn(16, nz, 1, 1, device=device)
    data = crosses()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler, drop_last=True)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for (real,) in loader:
            real = real.to(device)
            fake = netG(torch.randn(len(real), nz, 1, 1, device=device))
            scores = netD(torch.cat([real, fake.detach()]))
            target = torch.cat([torch.ones(len(real)), torch.zeros(len(real))]).to(device)
            lossD = bce(scores, target)
            optD.zero_grad()
            lossD.backward()
            optD.step()
            lossG = bce(netD(fake), torch.ones(len(real), device=device))
            optG.zero_grad()
            lossG.backward()
            optG.step()
        if rank == 0:
            with torch.no_grad():
                grid = netG.module(fixed_noise)  # fault
            torch.save(grid.cpu(), f"grid_{epoch}.pt")
            print(f"[{epoch}] D {lossD.item():.3f} G {lossG.item():.3f} mean pixel {grid.mean().item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
