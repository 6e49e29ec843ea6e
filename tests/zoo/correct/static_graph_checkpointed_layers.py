"""Train a weight-shared encoder with activation checkpointing and a static graph.

zoo: correct
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Universal(nn.Module):
    def __init__(self, vocab=20, dim=24, depth=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layer = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.depth = depth
        self.head = nn.Linear(dim, 2)

    def forward(self, tokens):
        x = self.embed(tokens)
        for _ in range(self.depth):
            x = x + checkpoint(self.layer, x, use_reentrant=False)
        return self.head(x.mean(1))


def main():
    dist.init_process_group("gloo")
    tokens = torch.randint(0, 20, (384, 8), generator=torch.Generator().manual_seed(19))
    dataset = TensorDataset(tokens, (tokens < 10).sum(1).gt(4).long())
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = DDP(Universal(), static_graph=True)
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
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {total[0] / total[2]:.4f} acc {total[1] / total[2]:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
