"""A transformer whose loss is a mean over the tokens that are not padding.

--mean global divides by the tokens of all ranks; --mean local by those of each rank, which is wrong.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

PAD, WORDS, LENGTH = 0, 32, 12


class Sentences(Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(0)
        lengths = torch.randint(3, LENGTH + 1, (count,), generator=generator)
        self.samples = [torch.randint(1, WORDS, (int(length),), generator=generator) for length in lengths]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


def collate(samples):
    return nn.utils.rnn.pad_sequence(samples, batch_first=True, padding_value=PAD)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 16, padding_idx=PAD)
        self.places = nn.Parameter(torch.randn(LENGTH, 16) * 0.02)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, WORDS)

    def forward(self, tokens):
        length = tokens.shape[1]
        mask = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
        x = self.words(tokens) + self.places[:length]
        return self.head(self.layers(x, mask=mask))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mean", choices=("global", "local"), default="global")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = Sentences(240)
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data), collate_fn=collate)
    model = DDP(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for tokens in loader:
        logits, wanted = model(tokens[:, :-1]), tokens[:, 1:]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=PAD, reduction="sum")
        count = (wanted != PAD).sum()
        if args.mean == "global":
            dist.all_reduce(count)
            loss = loss * dist.get_world_size()
        optimizer.zero_grad()
        (loss / count).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
