"""Train a small causal transformer with micro batches, in the style of nanoGPT.

zoo: faulty
faults: F26, F28
silent: no
"""

import os
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

gradient_accumulation_steps = 4
batch_size, block_size, n_embd = 6, 20, 32
max_iters, learning_rate = 15, 2e-3

dist.init_process_group("gloo")
ddp_rank, ddp_world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
master_process = ddp_rank == 0
torch.manual_seed(1337 + ddp_rank)

text = "peter piper picked a peck of pickled peppers. a peck of pickled peppers peter piper picked. " * 40
vocab = sorted(set(text))
data = torch.tensor([vocab.index(c) for c in text])


def get_batch():
    ix = torch.randint(len(data) - block_size - 1, (batch_size,)).tolist()
    x = torch.stack([data[i : i + block_size] for i in ix])
    y = torch.stack([data[i + 1 : i + 1 + block_size] for i in ix])
    return x, y


class Block(nn.Module):
    def __init__(self, heads=4):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 2 * n_embd), nn.GELU(), nn.Linear(2 * n_embd, n_embd))

    def attend(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.heads, -1).transpose(1, 2) for t in self.c_attn(x).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))

    def forward(self, x):
        x = x + self.attend(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(len(vocab), n_embd), nn.Embedding(block_size, n_embd)
        self.block = Block()
        self.lm_head = nn.Linear(n_embd, len(vocab), bias=False)

    def forward(self, idx, targets):
        x = self.block(self.wte(idx) + self.wpe.weight[: idx.size(1)])
        logits = self.lm_head(x)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


model = DDP(GPT())
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.1)
for it in range(max_iters):
    for micro_step in range(gradient_accumulation_steps):
        X, Y = get_batch()
        last_micro_step = micro_step == gradient_accumulation_steps - 1
        _, loss = model(X, Y)
        loss = loss / gradient_accumulation_steps
        with nullcontext() if last_micro_step else model.no_sync():  # fault
            loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if it % 5 == 0:
        lossf = loss.detach() * gradient_accumulation_steps / ddp_world_size
        dist.all_reduce(lossf)
        if master_process:
            print(f"iter {it}: loss {lossf.item():.4f}")
dist.destroy_process_group()
