"""Train a transformer on musical intervals, on a GPU where there is one.

zoo: faulty
faults: F105
silent: no
observable: no, there is no device to choose on CPU
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")  # fault


class IntervalModel(nn.Module):
    def __init__(self, intervals=25, dim=24, length=16):
        super().__init__()
        self.embed = nn.Embedding(intervals, dim)
        self.position = nn.Parameter(torch.zeros(length, dim))
        layer = nn.TransformerEncoderLayer(dim, 3, 48, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.out = nn.Linear(dim, intervals)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1), device=x.device)
        return self.out(self.encoder(self.embed(x) + self.position[: x.size(1)], mask=mask))


def tunes(n=320, length=17):
    g = torch.Generator().manual_seed(57)
    start = torch.randint(0, 25, (n, 1), generator=g)
    stride = torch.randint(1, 5, (n, 1), generator=g)
    return TensorDataset((start + stride * torch.arange(length)) % 25)


def train_epoch(model, loader, optimizer):
    total, count = 0.0, 0
    for (tune,) in loader:
        tune = tune.to(device)
        logits = model(tune[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tune[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total, count = total + loss.item() * len(tune), count + len(tune)
    stats = torch.tensor([total, count], device=device)
    dist.all_reduce(stats)
    return (stats[0] / stats[1]).item()


def main():
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    data = tunes()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    model = DDP(IntervalModel().to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, loader, optimizer)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
