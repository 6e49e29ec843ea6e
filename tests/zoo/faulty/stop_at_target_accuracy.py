"""Train a digit-like classifier until the running accuracy reaches a target.

zoo: faulty
faults: F81
silent: no
observable: no, neither rank reaches the target in so short a run
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Glyphs(Dataset):
    def __init__(self, n=400):
        g = torch.Generator().manual_seed(41)
        self.label = torch.randint(0, 10, (n,), generator=g)
        shapes = (torch.rand(10, 1, 7, 7, generator=g) > 0.5).float()
        self.image = shapes[self.label] + 1.2 * torch.randn(n, 1, 7, 7, generator=g)

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        return self.image[i], self.label[i]


class Running:
    """An exponential average that forgets the start."""

    def __init__(self, momentum=0.95):
        self.momentum, self.value = momentum, 0.0

    def update(self, value):
        self.value = self.momentum * self.value + (1 - self.momentum) * value
        return self.value


def train(args):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dataset = Glyphs()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=10, sampler=sampler)
    net = DDP(nn.Sequential(nn.Flatten(), nn.Linear(49, 64), nn.ReLU(), nn.Linear(64, 10)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    running = Running()
    done = False
    for epoch in range(args.max_epochs):
        sampler.set_epoch(epoch)
        for image, label in loader:
            logits = net(image)
            loss = nn.functional.cross_entropy(logits, label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            accuracy = running.update((logits.argmax(1) == label).float().mean().item())
            if accuracy >= args.target:
                done = True
                break  # fault
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}, running accuracy {running.value:.3f}")
        if done:
            break  # fault
    if rank == 0:
        torch.save(net.module.state_dict(), "glyphs.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-epochs", type=int, default=3)
    parser.add_argument("--target", type=float, default=0.99)
    train(parser.parse_args())
