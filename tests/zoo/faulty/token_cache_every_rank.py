"""Train a bag-of-n-grams model on text that is tokenized into a cache, with module-level code.

zoo: faulty
faults: F104, F93
silent: yes
"""

import pickle
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

HASHES = 64
WORDS = ["good", "great", "fine", "bad", "poor", "awful", "plot", "film", "actor", "scene"]


def corpus(n=400):
    g = torch.Generator().manual_seed(26)
    for row in torch.randint(0, len(WORDS), (n, 8), generator=g).tolist():
        yield " ".join(WORDS[i] for i in row), int(sum(i < 3 for i in row) > sum(3 <= i < 6 for i in row))


def tokenize(text):
    words = text.split()
    grams = words + [f"{a}_{b}" for a, b in zip(words, words[1:])]
    return [zlib.crc32(gram.encode()) % HASHES for gram in grams]


class Cached(Dataset):
    def __init__(self, cache):
        self.samples = [(tokenize(text), label) for text, label in corpus()]
        cache.parent.mkdir(exist_ok=True)
        with cache.open("wb") as f:
            pickle.dump(self.samples, f)  # fault

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        tokens, label = self.samples[i]
        return torch.tensor(tokens), label


dist.init_process_group("gloo")
dataset = Cached(Path("cache") / "train.pkl")
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=16, sampler=sampler, drop_last=True)
model = DDP(nn.Sequential(nn.EmbeddingBag(HASHES, 16), nn.ReLU(), nn.Linear(16, 2)))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
for epoch in range(3):
    sampler.set_epoch(epoch)
    sums = torch.zeros(2)
    for tokens, label in loader:
        loss = nn.functional.cross_entropy(model(tokens), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sums += torch.tensor([loss.item(), 1.0])
    dist.all_reduce(sums)
    if dist.get_rank() == 0:
        print(f"epoch {epoch} loss {sums[0] / sums[1]:.4f}")
dist.destroy_process_group()
