"""Train a GRU tagger with accumulation and gradient clipping, in a function per phase.

zoo: faulty
faults: F30
silent: yes
"""

import contextlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Tagger(nn.Module):
    def __init__(self, vocab=30, tags=3, dim=20):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.gru = nn.GRU(dim, dim, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * dim, tags)

    def forward(self, tokens):
        return self.head(self.gru(self.embed(tokens))[0])


def make_data():
    tokens = torch.randint(0, 30, (384, 10), generator=torch.Generator().manual_seed(12))
    tags = tokens % 3
    return TensorDataset(tokens, tags)


def micro_step(model, batch, accumulate, max_norm):
    tokens, tags = batch
    loss = F.cross_entropy(model(tokens).transpose(1, 2), tags)
    (loss / accumulate).backward()
    clip_grad_norm_(model.parameters(), max_norm)  # fault
    return loss.detach()


def train(accumulate=3, max_norm=0.3, epochs=3):
    data = make_data()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = DDP(Tagger())
    optimizer = torch.optim.SGD(model.parameters(), lr=4.0)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        losses = []
        for i, batch in enumerate(loader):
            last = (i + 1) % accumulate == 0
            with contextlib.nullcontext() if last else model.no_sync():
                losses.append(micro_step(model, batch, accumulate, max_norm))
            if last:
                optimizer.step()
                optimizer.zero_grad()
        mean = torch.stack(losses).mean()
        dist.all_reduce(mean)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {mean / dist.get_world_size():.4f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train()
    dist.destroy_process_group()
