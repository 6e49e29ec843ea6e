"""Train a variational autoencoder on binary patterns, grown out of the VAE example.

zoo: faulty
faults: F23
silent: yes
observable: no, the ranks stay equal; only a run on one process differs
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.utils.data
from torch import nn, optim
from torch.nn import functional as F


class VAE(nn.Module):
    def __init__(self, pixels=64):
        super().__init__()
        self.fc1 = nn.Linear(pixels, 48)
        self.fc21 = nn.Linear(48, 4)
        self.fc22 = nn.Linear(48, 4)
        self.fc3 = nn.Linear(4, 48)
        self.fc4 = nn.Linear(48, pixels)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        return mu + torch.randn_like(std) * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x)
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x, reduction="sum")  # fault
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())  # fault
    return BCE + KLD


def patterns(n=640):
    g = torch.Generator().manual_seed(1)
    base = (torch.rand(8, 64, generator=g) > 0.5).float()
    flips = (torch.rand(n, 64, generator=g) < 0.05).float()
    return torch.utils.data.TensorDataset((base[torch.arange(n) % 8] - flips).abs())


def main():
    parser = argparse.ArgumentParser(description="VAE Example")
    parser.add_argument("--batch-size", type=int, default=16, metavar="N")
    parser.add_argument("--epochs", type=int, default=2, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(args.seed + rank)

    train_set = patterns()
    train_sampler = torch.utils.data.DistributedSampler(train_set, seed=args.seed)
    train_loader = torch.utils.data.DataLoader(train_set, batch_size=args.batch_size, sampler=train_sampler)
    model = nn.parallel.DistributedDataParallel(VAE())
    optimizer = optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    for epoch in range(1, args.epochs + 1):
        train_sampler.set_epoch(epoch)
        model.train()
        train_loss = torch.zeros(())
        for (data,) in train_loader:
            optimizer.zero_grad()
            recon_batch, mu, logvar = model(data)
            loss = loss_function(recon_batch, data, mu, logvar)
            loss.backward()
            train_loss += loss.detach()
            optimizer.step()
        dist.all_reduce(train_loss)
        if rank == 0:
            print(f"====> Epoch: {epoch} Average loss: {train_loss.item() / len(train_set):.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
