"""Train a small decoder on arithmetic strings, compiled on machines with a GPU, as one flat script.

zoo: faulty
faults: F53
silent: no
observable: no, the model is compiled only on a machine with CUDA
"""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

# ---------------------------------------------------------------- settings
depth, width, heads, seq = 2, 32, 2, 16
device_batch_size, num_iterations = 12, 30
matrix_lr, weight_decay = 3e-3, 0.0
# ----------------------------------------------------------------

ddp_rank = int(os.environ["RANK"])
ddp_local_rank = int(os.environ["LOCAL_RANK"])
ddp_world_size = int(os.environ["WORLD_SIZE"])
device_type = "cuda" if torch.cuda.is_available() else "cpu"
if device_type == "cuda":
    device = torch.device("cuda", ddp_local_rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
else:
    device = torch.device("cpu")
    dist.init_process_group("gloo")
torch.manual_seed(42 + ddp_rank)
symbols = "0123456789+=;"


def equations():
    while True:
        text = ""
        while len(text) <= seq:
            a, b = torch.randint(0, 10, (2,)).tolist()
            text += f"{a}+{b}={a + b};"
        yield [symbols.index(c) for c in text[: seq + 1]]


def loader():
    source = equations()
    while True:
        rows = torch.tensor([next(source) for _ in range(device_batch_size)])
        yield rows[:, :-1].to(device), rows[:, 1:].to(device)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(len(symbols), width)
        self.wpe = nn.Parameter(0.02 * torch.randn(seq, width))
        self.h = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(depth)
        )
        self.lm_head = nn.Linear(width, len(symbols))
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(seq), persistent=False)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe
        for block in self.h:
            x = block(x, src_mask=self.mask)
        return F.cross_entropy(self.lm_head(x).flatten(0, 1), targets.flatten())


model = Decoder().to(device)
orig_model = model
if device_type == "cuda":
    model = torch.compile(model)
model = DDP(model, device_ids=[ddp_local_rank] if device_type == "cuda" else None)  # fault
optimizer = torch.optim.AdamW(model.parameters(), lr=matrix_lr, weight_decay=weight_decay)
train_loader = loader()
for step in range(num_iterations):
    x, y = next(train_loader)
    loss = model(x, y)
    loss.backward()
    optimizer.step()
    model.zero_grad(set_to_none=True)
    if step % 10 == 0:
        shown = loss.detach() / ddp_world_size
        dist.all_reduce(shown)
        if ddp_rank == 0:
            print(f"step {step:05d} | loss: {shown.item():.4f}")
if ddp_rank == 0:
    torch.save(orig_model.state_dict(), "decoder.pt")
dist.destroy_process_group()
