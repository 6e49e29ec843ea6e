"""Train a small causal language model with micro steps and a sync flag, in the style of nanoGPT.

zoo: faulty
faults: F25
silent: yes
"""

import math
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

batch_size, block_size, n_embd, n_head = 6, 16, 32, 4
gradient_accumulation_steps = 3
max_iters, warmup_iters, learning_rate, min_lr = 30, 5, 5e-3, 5e-4

dist.init_process_group("gloo")
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.manual_seed(1337 + rank)
text = "to be, or not to be, that is the question: whether 'tis nobler in the mind to suffer " * 30
itos = sorted(set(text))
data = torch.tensor([itos.index(c) for c in text])


def get_batch():
    ix = torch.randint(len(data) - block_size - 1, (batch_size,)).tolist()
    return (
        torch.stack([data[i : i + block_size] for i in ix]),
        torch.stack([data[i + 1 : i + block_size + 1] for i in ix]),
    )


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(n_embd, 3 * n_embd)
        self.proj = nn.Linear(n_embd, n_embd)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, n_head, C // n_head).transpose(1, 2) for t in self.qkv(x).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(B, T, C))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(len(itos), n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.ln, self.attn = nn.LayerNorm(n_embd), Attention()
        self.head = nn.Linear(n_embd, len(itos))

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1)))
        x = x + self.attn(self.ln(x))
        return F.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / warmup_iters
    ratio = (it - warmup_iters) / (max_iters - warmup_iters)
    return min_lr + 0.5 * (1 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


model = DDP(GPT())
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.1)
X, Y = get_batch()
for it in range(max_iters):
    for group in optimizer.param_groups:
        group["lr"] = get_lr(it)
    for micro_step in range(gradient_accumulation_steps):
        model.require_backward_grad_sync = micro_step == gradient_accumulation_steps  # fault
        loss = model(X, Y) / gradient_accumulation_steps
        X, Y = get_batch()
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if it % 10 == 0:
        lossf = loss.detach() * gradient_accumulation_steps / world
        dist.all_reduce(lossf)
        if rank == 0:
            print(f"iter {it}: loss {lossf.item():.4f}, lr {get_lr(it):.1e}")
dist.destroy_process_group()
