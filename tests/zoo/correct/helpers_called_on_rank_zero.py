"""Train a density model; helpers without a guard of their own write files, and only rank 0 calls them.

zoo: correct
"""

import math
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class MixtureHead(nn.Module):
    def __init__(self, features=5, hidden=32, parts=3):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, 3 * parts))

    def forward(self, x):
        logits, mean, log_std = self.net(x).chunk(3, dim=1)
        return logits.log_softmax(1), mean, log_std.clamp(-4, 2)


def negative_log_likelihood(output, y):
    log_weight, mean, log_std = output
    z = (y.unsqueeze(1) - mean) / log_std.exp()
    log_prob = -0.5 * z**2 - log_std - 0.5 * math.log(2 * math.pi)
    return -torch.logsumexp(log_weight + log_prob, dim=1).mean()


def forked(n=480):
    g = torch.Generator().manual_seed(30)
    x = torch.randn(n, 5, generator=g)
    side = torch.randint(0, 2, (n,), generator=g) * 2 - 1
    return TensorDataset(x, side * (1 + x[:, 0].abs()) + 0.1 * torch.randn(n, generator=g))


def save(folder, model, epoch):
    folder.mkdir(exist_ok=True)
    torch.save({"model": model.state_dict(), "epoch": epoch}, folder / "last.pt")


def report(folder, epoch, loss, seconds):
    line = f"epoch {epoch}: {loss:.4f} nats, {seconds:.1f} s"
    print(line)
    with (folder / "log.txt").open("a") as f:
        f.write(line + "\n")


def draw_samples(network, x):
    log_weight, mean, log_std = network(x)
    part = log_weight.exp().multinomial(1)
    return mean.gather(1, part) + log_std.gather(1, part).exp() * torch.randn(len(x), 1)


def after_epoch(folder, model, epoch, loss, began):
    save(folder, model.module, epoch)
    report(folder, epoch, loss, time.time() - began)
    with torch.no_grad():
        samples = draw_samples(model.module, torch.zeros(64, 5))
    torch.save(samples, folder / f"samples_{epoch}.pt")


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    dataset = forked()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=20, sampler=sampler)
    model = DDP(MixtureHead())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(3):
        began = time.time()
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for x, y in loader:
            loss = negative_log_likelihood(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() / len(loader)
        dist.all_reduce(total)
        if rank == 0:
            after_epoch(Path("density"), model, epoch, total.item() / world, began)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
