"""Train an ALBERT-like encoder on frozen embeddings that applies one layer several times.

zoo: faulty
faults: F47
silent: yes
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class SharedEncoder(nn.Module):
    def __init__(self, dim=24, depth=3, vocab=20, classes=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim).requires_grad_(False)
        self.shared = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))
        self.depth = depth
        self.head = nn.Linear(dim, classes)

    def forward(self, tokens):
        x = self.embed(tokens).requires_grad_()
        for _ in range(self.depth):
            x = x + checkpoint(self.shared, x, use_reentrant=True)  # fault
        return self.head(x.mean(1))


def parity_data(n=384):
    tokens = torch.randint(0, 20, (n, 8), generator=torch.Generator().manual_seed(19))
    return TensorDataset(tokens, (tokens < 10).sum(1).gt(4).long())


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    data = parity_data()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    model = DDP(SharedEncoder())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros(3)
        for tokens, label in loader:
            logits = model(tokens)
            loss = nn.functional.cross_entropy(logits, label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item() * len(label), (logits.argmax(1) == label).sum().item(), len(label)])
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {total[0] / total[2]:.4f} acc {total[1] / total[2]:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
