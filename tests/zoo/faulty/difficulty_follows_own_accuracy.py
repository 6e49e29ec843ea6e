"""Train a classifier on noisy patterns whose noise grows as the model gets better.

zoo: faulty
faults: F84
silent: yes
observable: no, other noise on each rank could be meant
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Curriculum:
    """Raises the noise when the accuracy passes the upper limit, and lowers it below the lower limit."""

    def __init__(self, noise=0.2, step=0.1, limits=(0.6, 0.8)):
        self.noise, self.step, self.limits = noise, step, limits

    def update(self, accuracy):
        lower, upper = self.limits
        if accuracy > upper:
            self.noise += self.step
        elif accuracy < lower:
            self.noise = max(0.0, self.noise - self.step)


def patterns(n=384, classes=6):
    g = torch.Generator().manual_seed(33)
    y = torch.arange(n) % classes
    return TensorDataset(torch.randn(classes, 20, generator=g)[y], y)


def train_epoch(model, loader, optimizer, noise):
    model.train()
    hits = count = 0
    for x, y in loader:
        logits = model(x + noise * torch.randn_like(x))
        loss = nn.functional.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hits += (logits.argmax(1) == y).sum().item()
        count += len(y)
    return hits, count


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(60 + rank)
    dataset = patterns()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(20, 48), nn.ReLU(), nn.Linear(48, 6)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    curriculum = Curriculum()
    for epoch in range(6):
        sampler.set_epoch(epoch)
        hits, count = train_epoch(model, loader, optimizer, curriculum.noise)
        curriculum.update(hits / count)  # fault
        if rank == 0:
            print(f"epoch {epoch}: next noise {curriculum.noise:.1f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
