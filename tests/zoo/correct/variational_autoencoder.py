"""Train a variational autoencoder; the noise of each rank has its own seed.

zoo: correct
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(36, 32)
        self.fc21, self.fc22 = nn.Linear(32, 4), nn.Linear(32, 4)
        self.fc3, self.fc4 = nn.Linear(4, 32), nn.Linear(32, 36)

    def forward(self, x):
        h = F.relu(self.fc1(x))
        mu, logvar = self.fc21(h), self.fc22(h)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return self.fc4(F.relu(self.fc3(z))), mu, logvar


def loss_function(recon, x, mu, logvar):
    bce = F.binary_cross_entropy_with_logits(recon, x, reduction="none").sum(1)
    kld = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1)
    return (bce + kld).mean()


def bars(n, seed):
    g = torch.Generator().manual_seed(seed)
    on = (torch.rand(n, 6, generator=g) < 0.3).float()
    return TensorDataset(on.unsqueeze(2).expand(n, 6, 6).reshape(n, 36))


def main():
    parser = argparse.ArgumentParser(description="VAE")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32, help="over all ranks")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(args.seed + rank)
    train_set, test_set = bars(640, 0), bars(128, 1)
    sampler = DistributedSampler(train_set, seed=args.seed)
    loader = DataLoader(train_set, batch_size=args.batch_size // world, sampler=sampler)
    test_loader = DataLoader(test_set, batch_size=32, sampler=DistributedSampler(test_set, shuffle=False))
    model = DDP(VAE())
    optimizer = optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(1, args.epochs + 1):
        sampler.set_epoch(epoch)
        model.train()
        for (x,) in loader:
            recon, mu, logvar = model(x)
            loss = loss_function(recon, x, mu, logvar)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        test = torch.zeros(2)
        with torch.no_grad():
            for (x,) in test_loader:
                recon, mu, logvar = model(x)
                test += torch.tensor([loss_function(recon, x, mu, logvar).item() * len(x), len(x)])
        dist.all_reduce(test)
        if rank == 0:
            print(f"====> Epoch: {epoch} Test loss: {test[0] / test[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
