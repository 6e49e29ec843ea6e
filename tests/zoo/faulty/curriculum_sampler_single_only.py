"""Train a model of arithmetic expressions, easy ones first, with a Trainer class.

zoo: faulty
faults: F10
silent: yes
observable: no, every rank trains on its shard; only the order of difficulty is lost
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler
from torch.utils.data.distributed import DistributedSampler


class Expressions(Dataset):
    """Sums of two to nine digits, padded; the more terms, the harder."""

    def __init__(self, n=400):
        g = torch.Generator().manual_seed(12)
        self.terms = torch.randint(2, 10, (n,), generator=g)
        digits = torch.randint(1, 10, (n, 9), generator=g)
        self.digits = digits * (torch.arange(9) < self.terms[:, None])

    def __len__(self):
        return len(self.terms)

    def __getitem__(self, i):
        return self.digits[i], self.digits[i].sum().float() / 40


class CurriculumSampler(Sampler):
    """Opens the data set from easy to hard; within what is open, the order is random."""

    def __init__(self, difficulty, epochs, seed=0):
        self.order = torch.argsort(difficulty, stable=True)
        self.epochs, self.seed, self.epoch = epochs, seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return len(self.order) * (self.epoch + 1) // self.epochs

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        pool = self.order[: len(self)]
        return iter(pool[torch.randperm(len(pool), generator=g)].tolist())


class SumNet(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.embed = nn.Embedding(10, dim, padding_idx=0)
        self.mlp = nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, digits):
        return self.mlp(self.embed(digits).sum(1)).squeeze(1)


class Trainer:
    def __init__(self, dataset, epochs=4, batch_size=10):
        self.epochs = epochs
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.sampler = CurriculumSampler(dataset.terms, epochs)
        if self.world > 1:
            self.sampler = DistributedSampler(dataset, seed=self.sampler.seed)  # fault
        self.loader = DataLoader(dataset, batch_size=batch_size, sampler=self.sampler)
        self.model = nn.parallel.DistributedDataParallel(SumNet())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)

    def run(self):
        for epoch in range(self.epochs):
            self.sampler.set_epoch(epoch)
            stats = torch.zeros(2)
            for digits, target in self.loader:
                loss = nn.functional.smooth_l1_loss(self.model(digits), target)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                stats += torch.tensor([loss.item() * len(target), len(target)])
            dist.all_reduce(stats)
            if self.rank == 0:
                print(f"epoch {epoch}: {stats[0] / stats[1]:.5f} over {int(stats[1])} expressions")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Trainer(Expressions()).run()
    dist.destroy_process_group()
