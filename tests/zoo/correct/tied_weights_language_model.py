"""Train a small transformer language model with tied input and output embeddings.

zoo: correct
"""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

VOCAB, BLOCK, DIM = 26, 16, 32


class Counting(Dataset):
    """Arithmetic sequences over the alphabet."""

    def __len__(self):
        return 416

    def __getitem__(self, i):
        sequence = (i % VOCAB + (1 + i // VOCAB % 4) * torch.arange(BLOCK + 1)) % VOCAB
        return sequence[:-1], sequence[1:]


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.position = nn.Parameter(torch.zeros(BLOCK, DIM))
        layer = nn.TransformerEncoderLayer(DIM, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(DIM, VOCAB, bias=False)
        self.head.weight = self.embed.weight
        nn.init.normal_(self.embed.weight, std=0.1)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(BLOCK))

    def forward(self, tokens):
        x = self.embed(tokens) + self.position
        return self.head(self.blocks(x, mask=self.mask, is_causal=True))


def main():
    dist.init_process_group("gloo")
    dataset = Counting()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = DDP(LanguageModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for tokens, targets in loader:
            loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.detach() / len(loader) / dist.get_world_size()
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {total.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
