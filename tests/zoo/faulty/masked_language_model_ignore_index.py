"""Pre-train a small BERT-like model with masked tokens and dynamic masking.

zoo: faulty
faults: F22
silent: yes
observable: no, the ranks stay equal; only a run on one process differs
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

PAD, MASK, FIRST = 0, 1, 2


class Sentences(Dataset):
    def __init__(self, n=320, vocab=40):
        g = torch.Generator().manual_seed(3)
        lengths = torch.randint(3, 16, (n,), generator=g).tolist()
        starts = torch.randint(0, vocab, (n,), generator=g).tolist()
        self.rows = [FIRST + (s + torch.arange(k)) % vocab for s, k in zip(starts, lengths)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class MaskingCollator:
    def __init__(self, probability=0.3, seed=0):
        self.probability = probability
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, rows):
        tokens = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
        chosen = (torch.rand(tokens.shape, generator=self.generator) < self.probability) & (tokens != PAD)
        chosen[:, 0] = True
        labels = tokens.masked_fill(~chosen, -100)
        return {"input_ids": tokens.masked_fill(chosen, MASK), "labels": labels}


class TinyBert(nn.Module):
    def __init__(self, vocab=42, dim=32, length=16):
        super().__init__()
        self.tokens = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.positions = nn.Embedding(length, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.decoder = nn.Linear(dim, vocab)

    def forward(self, input_ids):
        x = self.tokens(input_ids) + self.positions(torch.arange(input_ids.size(1)))
        return self.decoder(self.encoder(x, src_key_padding_mask=input_ids == PAD))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    dataset = Sentences()
    sampler = DistributedSampler(dataset, seed=1)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler, collate_fn=MaskingCollator(seed=rank))
    model = DistributedDataParallel(TinyBert())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    criterion = nn.CrossEntropyLoss(ignore_index=-100)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for step, batch in enumerate(loader):
            logits = model(batch["input_ids"])
            loss = criterion(logits.view(-1, logits.size(-1)), batch["labels"].view(-1))  # fault
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if step % 5 == 0 and rank == 0:
                print(f"epoch {epoch} step {step}: loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
