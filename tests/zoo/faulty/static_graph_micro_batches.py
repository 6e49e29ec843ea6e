"""Train a checkpointed transformer encoder with a static graph and micro batches.

zoo: faulty
faults: F51
silent: no
ends: crash
"""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Encoder(nn.Module):
    def __init__(self, vocab=20, dim=24, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, 2, 48, dropout=0.0, batch_first=True) for _ in range(depth)
        )
        self.head = nn.Linear(dim, 2)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return self.head(x.mean(1))


def sequences(n=384):
    tokens = torch.randint(0, 20, (n, 10), generator=torch.Generator().manual_seed(4))
    return TensorDataset(tokens, (tokens.float().mean(1) > 9.5).long())


def main(accumulate=3, epochs=2):
    dist.init_process_group("gloo")
    data = sequences()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = DDP(Encoder(), static_graph=True)  # fault
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for step, (tokens, label) in enumerate(loader, 1):
            update = step % accumulate == 0
            with contextlib.nullcontext() if update else model.no_sync():
                loss = nn.functional.cross_entropy(model(tokens), label)
                (loss / accumulate).backward()
            if update:
                optimizer.step()
                optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
