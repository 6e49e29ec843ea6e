"""Train a word-level n-gram model and report its perplexity, as module-level code with get_batch.

zoo: faulty
faults: F71
silent: yes
"""

import math
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

context, vocab, batch_size, eval_interval, max_iters = 3, 40, 16, 25, 75

dist.init_process_group("gloo")
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.manual_seed(1000 + rank)

g = torch.Generator().manual_seed(0)
table = torch.randint(0, vocab, (vocab, 4), generator=g)
tokens = [1]
for choice in torch.randint(0, 4, (6000,), generator=g).tolist():
    tokens.append(int(table[tokens[-1], choice]))
tokens = torch.tensor(tokens)
train_data, val_data = tokens[:5000], tokens[5000:]


def get_batch():
    ix = torch.randint(len(train_data) - context, (batch_size,))
    x = torch.stack([train_data[i : i + context] for i in ix])
    return x, train_data[ix + context]


class NGram(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.mlp = nn.Sequential(nn.Linear(context * dim, 64), nn.Tanh(), nn.Linear(64, vocab))

    def forward(self, x):
        return self.mlp(self.embed(x).flatten(1))


@torch.no_grad()
def estimate_loss(model):
    model.eval()
    starts = torch.arange(len(val_data) - context)[rank::world]
    x = torch.stack([val_data[i : i + context] for i in starts])
    loss = F.cross_entropy(model(x), val_data[starts + context])
    model.train()
    return loss.item()


model = DDP(NGram())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for it in range(1, max_iters + 1):
    x, y = get_batch()
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if it % eval_interval == 0:
        val_loss = estimate_loss(model)
        if rank == 0:
            print(f"iter {it}: val perplexity {math.exp(val_loss):.2f}")  # fault
dist.destroy_process_group()
