"""Train a character model in the manner of nanoGPT: get_batch and gradient accumulation. Launched by torchrun."""

import math
import os

import torch
import torch.nn as nn
from torch.distributed import all_reduce, destroy_process_group, init_process_group
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

# -----------------------------------------------------------------------------
gradient_accumulation_steps = 4  # of all ranks
batch_size, block_size, n_embd, n_head = 6, 16, 32, 4
max_iters, eval_interval, eval_iters = 24, 8, 4
learning_rate, min_lr, warmup_iters, grad_clip = 5e-3, 5e-4, 4, 1.0
# -----------------------------------------------------------------------------
init_process_group(backend="gloo")
ddp_rank, ddp_world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
master_process = ddp_rank == 0
seed_offset = ddp_rank
assert gradient_accumulation_steps % ddp_world_size == 0
gradient_accumulation_steps //= ddp_world_size
torch.manual_seed(1337 + seed_offset)

text = "how much wood would a woodchuck chuck if a woodchuck could chuck wood? as much as it could. " * 40
stoi = {c: i for i, c in enumerate(sorted(set(text)))}
tokens = torch.tensor([stoi[c] for c in text])
train_data, val_data = tokens[:3300], tokens[3300:]


def get_batch(split):
    data = train_data if split == "train" else val_data
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([data[i : i + block_size] for i in ix])
    y = torch.stack([data[i + 1 : i + 1 + block_size] for i in ix])
    return x, y


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (t.view(B, T, n_head, C // n_head).transpose(1, 2) for t in self.c_attn(self.ln_1(x)).split(C, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(len(stoi), n_embd), nn.Embedding(block_size, n_embd)
        self.block, self.ln_f = Block(), nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, len(stoi), bias=False)

    def forward(self, idx, targets):
        x = self.block(self.wte(idx) + self.wpe(torch.arange(idx.size(1))))
        return F.cross_entropy(self.lm_head(self.ln_f(x)).flatten(0, 1), targets.flatten())


@torch.no_grad()
def estimate_loss():
    out = {}
    model.eval()
    for split in ["train", "val"]:
        losses = torch.tensor([raw_model(*get_batch(split)).item() for _ in range(eval_iters)]).mean()
        all_reduce(losses)
        out[split] = losses / ddp_world_size
    model.train()
    return out


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    coeff = 0.5 * (1.0 + math.cos(math.pi * (it - warmup_iters) / (max_iters - warmup_iters)))
    return min_lr + coeff * (learning_rate - min_lr)


model = DDP(GPT())
raw_model = model.module
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.1)
X, Y = get_batch("train")
for iter_num in range(max_iters + 1):
    for param_group in optimizer.param_groups:
        param_group["lr"] = get_lr(iter_num)
    if iter_num % eval_interval == 0:
        losses = estimate_loss()
    if iter_num % eval_interval == 0 and master_process:
        print(f"step {iter_num}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}")
        if iter_num > 0:
            torch.save({"model": raw_model.state_dict(), "optimizer": optimizer.state_dict()}, "ckpt.pt")
    for micro_step in range(gradient_accumulation_steps):
        model.require_backward_grad_sync = micro_step == gradient_accumulation_steps - 1
        loss = model(X, Y) / gradient_accumulation_steps
        X, Y = get_batch("train")
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)

destroy_process_group()
