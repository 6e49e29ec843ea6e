"""Train a generator and a discriminator in the manner of the DCGAN example. Launched by torchrun."""

import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.optim as optim
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batchSize", type=int, default=40, help="input batch size")
parser.add_argument("--nz", type=int, default=8, help="size of the latent z vector")
parser.add_argument("--niter", type=int, default=2, help="number of epochs to train for")
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--beta1", type=float, default=0.5)
parser.add_argument("--manualSeed", type=int, default=9)
opt = parser.parse_args()
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(opt.manualSeed)


class Generator(nn.Module):
    def __init__(self, nz, ngf=16):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf, 4, 1, 0), nn.ReLU(True), nn.ConvTranspose2d(ngf, 1, 4, 2, 1), nn.Tanh()
        )

    def forward(self, input):
        return self.main(input)


class Discriminator(nn.Module):
    def __init__(self, ndf=16):
        super().__init__()
        self.main = nn.Sequential(nn.Conv2d(1, ndf, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(ndf, 1, 4, 1, 0))

    def forward(self, input):
        return self.main(input).flatten()


def blobs(n):
    at = torch.arange(8.0)
    center = 2 + 3 * torch.rand(n, 2)
    square = (at[None, :, None] - center[:, :1, None]) ** 2 + (at[None, None, :] - center[:, 1:, None]) ** 2
    return TensorDataset(2 * torch.exp(-square / 4).unsqueeze(1) - 1)


dataset = blobs(620)
sampler = DistributedSampler(dataset, shuffle=True)
dataloader = DataLoader(dataset, batch_size=opt.batchSize // world, sampler=sampler)
netG, netD = DDP(Generator(opt.nz)), DDP(Discriminator())
criterion = nn.BCEWithLogitsLoss()
fixed_noise = torch.randn(16, opt.nz, 1, 1)
torch.manual_seed(opt.manualSeed + rank)  # other noise on each rank
optimizerD = optim.Adam(netD.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))

for epoch in range(opt.niter):
    sampler.set_epoch(epoch)
    for i, (real,) in enumerate(dataloader):
        # Update D: log(D(x)) + log(1 - D(G(z)))
        netD.zero_grad()
        label = torch.ones(real.size(0))
        errD_real = criterion(netD(real), label)
        errD_real.backward()
        noise = torch.randn(real.size(0), opt.nz, 1, 1)
        fake = netG(noise)
        errD_fake = criterion(netD(fake.detach()), torch.zeros_like(label))
        errD_fake.backward()
        optimizerD.step()
        # Update G: log(D(G(z)))
        netG.zero_grad()
        errG = criterion(netD(fake), label)
        errG.backward()
        optimizerG.step()
        if i % 5 == 0 and rank == 0:
            errD = errD_real + errD_fake
            print(f"[{epoch}/{opt.niter}][{i}/{len(dataloader)}] Loss_D: {errD.item():.4f} Loss_G: {errG.item():.4f}")
    if rank == 0:
        with torch.no_grad():
            torch.save(netG.module(fixed_noise), f"fake_samples_epoch_{epoch}.pt")
        torch.save(netG.module.state_dict(), f"netG_epoch_{epoch}.pth")
        torch.save(netD.module.state_dict(), f"netD_epoch_{epoch}.pth")
dist.destroy_process_group()
