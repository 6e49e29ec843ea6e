"""Train a convolutional GAN whose discriminator has batch normalization and sees real and fake batches in turn.

zoo: correct
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Crosses(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        image = 0.1 * torch.randn(1, 8, 8, generator=g)
        row, column = torch.randint(0, 8, (2,), generator=g).tolist()
        image[:, row] += 1
        image[:, :, column] += 1
        return image


class Generator(nn.Sequential):
    def __init__(self, nz):
        super().__init__(
            nn.ConvTranspose2d(nz, 16, 4), nn.BatchNorm2d(16), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1)
        )


class Discriminator(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 16, 4, 2, 1),
            nn.BatchNorm2d(16),
            nn.LeakyReLU(0.2),
            nn.Conv2d(16, 1, 4),
            nn.Flatten(0),
        )


def main(opt):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(opt.seed + rank)
    netG, netD = DDP(Generator(opt.nz)), DDP(Discriminator())
    optD = torch.optim.Adam(netD.parameters(), lr=opt.lr, betas=(0.5, 0.999))
    optG = torch.optim.Adam(netG.parameters(), lr=opt.lr, betas=(0.5, 0.999))
    dataset = Crosses()
    sampler = DistributedSampler(dataset, seed=opt.seed)
    loader = DataLoader(dataset, batch_size=64, sampler=sampler)
    bce = nn.functional.binary_cross_entropy_with_logits
    for epoch in range(opt.niter):
        sampler.set_epoch(epoch)
        sums = torch.zeros(2)
        for real in loader:
            fake = netG(torch.randn(len(real), opt.nz, 1, 1))
            out_real, out_fake = netD(real), netD(fake.detach())
            errD = bce(out_real, torch.ones_like(out_real)) + bce(out_fake, torch.zeros_like(out_fake))
            netD.zero_grad()
            errD.backward()
            optD.step()
            out = netD(fake)
            errG = bce(out, torch.ones_like(out))
            netG.zero_grad()
            errG.backward()
            optG.step()
            sums += torch.tensor([errD.item(), errG.item()]) / len(loader) / world
        dist.all_reduce(sums)
        if rank == 0:
            print(f"[{epoch + 1}/{opt.niter}] Loss_D: {sums[0]:.4f} Loss_G: {sums[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--niter", type=int, default=5)
    parser.add_argument("--nz", type=int, default=8)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=999)
    main(parser.parse_args())
