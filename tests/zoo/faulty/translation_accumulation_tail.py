"""Train a toy sequence copier with gradient accumulation, in a Trainer class.

zoo: faulty
faults: F25
silent: yes
"""

import os
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Reversal(Dataset):
    """The target is the source read backwards."""

    def __init__(self, n=352, length=6, vocab=12):
        self.source = torch.randint(0, vocab, (n, length), generator=torch.Generator().manual_seed(6))

    def __len__(self):
        return len(self.source)

    def __getitem__(self, i):
        return self.source[i], self.source[i].flip(0)


class Model(nn.Module):
    def __init__(self, vocab=12, dim=24, length=6):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Parameter(torch.zeros(length, dim))
        self.layer = nn.TransformerEncoderLayer(dim, 2, 48, dropout=0.0, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, source):
        return self.out(self.layer(self.tok(source) + self.pos))


class Trainer:
    def __init__(self, accumulate=4):
        self.rank = int(os.environ["RANK"])
        self.accumulate = accumulate
        self.data = Reversal()
        self.sampler = DistributedSampler(self.data, shuffle=True)
        self.loader = DataLoader(self.data, batch_size=8, sampler=self.sampler)
        self.model = DDP(Model())
        self.opt = torch.optim.Adam(self.model.parameters(), lr=5e-3)

    def train_epoch(self, epoch):
        self.sampler.set_epoch(epoch)
        n = len(self.loader)
        losses = torch.zeros(n)
        for step, (source, target) in enumerate(self.loader):
            window = min(self.accumulate, n - step // self.accumulate * self.accumulate)
            boundary = (step + 1) % self.accumulate == 0
            with nullcontext() if boundary else self.model.no_sync():  # fault
                loss = nn.functional.cross_entropy(self.model(source).flatten(0, 1), target.flatten())
                (loss / window).backward()
            if boundary or step + 1 == n:
                self.opt.step()
                self.opt.zero_grad()
            losses[step] = loss.detach()
        dist.all_reduce(losses)
        if self.rank == 0:
            print(f"epoch {epoch}: loss {losses.mean().item() / dist.get_world_size():.4f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    trainer = Trainer()
    for epoch in range(4):
        trainer.train_epoch(epoch)
    dist.destroy_process_group()
