"""Train a GAN on two-dimensional points and export the generator after each epoch.

zoo: faulty
faults: F45
silent: yes
observable: no, without CUDA no parameter moves
"""

import os

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

nz = 8
cuda = torch.cuda.is_available()
local_rank = int(os.environ["LOCAL_RANK"])
device = f"cuda:{local_rank}" if cuda else "cpu"
if cuda:
    torch.cuda.set_device(local_rank)
dist.init_process_group("nccl" if cuda else "gloo")
rank = dist.get_rank()
torch.manual_seed(12 + rank)


def export(net, path):
    """Writes the weights so that a machine without a GPU reads them."""
    net.cpu()  # fault
    if dist.get_rank() == 0:
        torch.save({name: p.detach().clone() for name, p in net.named_parameters()}, path)
    net.to(device)


def ring(n=640):
    g = torch.Generator().manual_seed(3)
    angle = 2 * torch.pi * torch.rand(n, generator=g)
    points = torch.stack([angle.cos(), angle.sin()], 1)
    return TensorDataset(points + 0.05 * torch.randn(n, 2, generator=g))


netG = nn.Sequential(nn.Linear(nz, 48), nn.ReLU(), nn.Linear(48, 2)).to(device)
netD = nn.Sequential(nn.Linear(2, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1)).to(device)
netG = DistributedDataParallel(netG, device_ids=[local_rank] if cuda else None)
netD = DistributedDataParallel(netD, device_ids=[local_rank] if cuda else None)
optimizerG = optim.Adam(netG.parameters(), lr=1e-3, betas=(0.5, 0.999))
optimizerD = optim.Adam(netD.parameters(), lr=1e-3, betas=(0.5, 0.999))
criterion = nn.BCEWithLogitsLoss()

dataset = ring()
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=32, sampler=sampler)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for (real,) in loader:
        real = real.to(device)
        ones, zeros = torch.ones(len(real), 1, device=device), torch.zeros(len(real), 1, device=device)
        fake = netG(torch.randn(len(real), nz, device=device))

        optimizerD.zero_grad()
        scores = netD(torch.cat([real, fake.detach()]))
        errD = criterion(scores, torch.cat([ones, zeros]))
        errD.backward()
        optimizerD.step()

        optimizerG.zero_grad()
        errG = criterion(netD(fake), ones)
        errG.backward()
        optimizerG.step()
    export(netG.module, f"generator_{epoch}.pt")
    if rank == 0:
        print(f"[{epoch}] Loss_D: {errD.item():.4f} Loss_G: {errG.item():.4f}")
dist.destroy_process_group()
