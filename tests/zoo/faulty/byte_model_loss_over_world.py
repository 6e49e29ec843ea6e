"""Train a byte-level model that predicts the next byte of source code, as module-level code.

zoo: faulty
faults: F24
silent: yes
observable: no, the ranks stay equal; only a run on one process differs
"""

import inspect
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

# hyperparameters
context = 24
batch = 12
dim = 40
steps = 60
lr = 0.3

dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
world_size = int(os.environ["WORLD_SIZE"])
torch.manual_seed(77 + rank)

corpus = inspect.getsource(nn.Module)[:20000].encode("ascii", "ignore")
data = torch.frombuffer(bytearray(corpus), dtype=torch.uint8).long()


def sample():
    start = torch.randint(len(data) - context - 1, (batch,))
    window = start[:, None] + torch.arange(context + 1)
    chunk = data[window]
    return chunk[:, :-1], chunk[:, 1:]


class ByteModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(128, dim)
        self.mix = nn.Conv1d(dim, dim, 5)
        self.norm = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, 128)

    def forward(self, x):
        h = self.embed(x)
        mixed = self.mix(F.pad(h.transpose(1, 2), (4, 0))).transpose(1, 2)
        return self.out(self.norm(h + F.silu(mixed)))


model = DDP(ByteModel())
optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
for step in range(1, steps + 1):
    x, y = sample()
    optimizer.zero_grad(set_to_none=True)
    logits = model(x)
    loss = F.cross_entropy(logits.reshape(-1, 128), y.reshape(-1))
    loss = loss / world_size  # fault
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        shown = loss.detach().clone()
        dist.all_reduce(shown)
        if rank == 0:
            print(f"step {step}: {shown.item() / 0.6931:.3f} bits per byte")
dist.destroy_process_group()
