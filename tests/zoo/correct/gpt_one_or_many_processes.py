"""Train a small causal model with one process or with many, in the style of nanoGPT with its test of the environment.

zoo: correct
"""

import os
import time
from contextlib import nullcontext

import torch
import torch.nn as nn
from torch.distributed import all_reduce, destroy_process_group, init_process_group
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

out_dir = "out"
gradient_accumulation_steps = 4
batch_size, block_size, n_embd = 6, 18, 32
learning_rate, max_iters, eval_interval, log_interval, grad_clip = 3e-3, 24, 12, 6, 1.0
compile = False

ddp = int(os.environ.get("RANK", -1)) != -1  # is this a ddp run?
device = "cuda" if torch.cuda.is_available() else "cpu"
if ddp:
    init_process_group(backend="nccl" if device == "cuda" else "gloo")
    ddp_rank = int(os.environ["RANK"])
    ddp_local_rank = int(os.environ["LOCAL_RANK"])
    ddp_world_size = int(os.environ["WORLD_SIZE"])
    if device == "cuda":
        device = f"cuda:{ddp_local_rank}"
        torch.cuda.set_device(device)
    master_process = ddp_rank == 0
    seed_offset = ddp_rank
    assert gradient_accumulation_steps % ddp_world_size == 0
    gradient_accumulation_steps //= ddp_world_size
else:
    master_process = True
    seed_offset = 0
    ddp_world_size = 1
if master_process:
    os.makedirs(out_dir, exist_ok=True)
torch.manual_seed(1337 + seed_offset)

text = "how much wood would a woodchuck chuck if a woodchuck could chuck wood? as much wood as he could. " * 30
stoi = {c: i for i, c in enumerate(sorted(set(text)))}
data = torch.tensor([stoi[c] for c in text])
train_data, val_data = data[: int(0.9 * len(data))], data[int(0.9 * len(data)) :]


def get_batch(split):
    source = train_data if split == "train" else val_data
    ix = torch.randint(len(source) - block_size, (batch_size,))
    x = torch.stack([source[i : i + block_size] for i in ix])
    y = torch.stack([source[i + 1 : i + 1 + block_size] for i in ix])
    return x.to(device), y.to(device)


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(len(stoi), n_embd), nn.Embedding(block_size, n_embd)
        self.ln = nn.LayerNorm(n_embd)
        self.qkv, self.proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.lm_head = nn.Linear(n_embd, len(stoi), bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe.weight[: idx.size(1)]
        q, k, v = self.qkv(self.ln(x)).chunk(3, dim=-1)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return F.cross_entropy(self.lm_head(x).flatten(0, 1), targets.flatten())


model = GPT().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95))
if ddp:
    model = DDP(model, device_ids=[ddp_local_rank] if "cuda" in device else None)
raw_model = model.module if ddp else model
if compile:
    model = torch.compile(model)


@torch.no_grad()
def estimate_loss(batches=4):
    raw_model.eval()
    loss = torch.stack([raw_model(*get_batch("val")) for _ in range(batches)]).mean() / ddp_world_size
    raw_model.train()
    if ddp:
        all_reduce(loss)
    return loss.item()


t0 = time.time()
for iter_num in range(max_iters):
    if iter_num % eval_interval == 0:
        val_loss = estimate_loss()
        if master_process:
            print(f"step {iter_num}: val loss {val_loss:.4f}")
            torch.save({"model": raw_model.state_dict(), "iter_num": iter_num}, os.path.join(out_dir, "ckpt.pt"))
    for micro_step in range(gradient_accumulation_steps):
        X, Y = get_batch("train")
        last = micro_step == gradient_accumulation_steps - 1
        with model.no_sync() if ddp and not last else nullcontext():
            loss = model(X, Y) / gradient_accumulation_steps
            loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if iter_num % log_interval == 0 and master_process:
        print(f"iter {iter_num}: {1000 * (time.time() - t0):.0f} ms since the start")
if ddp:
    destroy_process_group()
