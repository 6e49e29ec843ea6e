"""Train a part-of-speech model on text whose vocabulary is cached in a file.

zoo: faulty
faults: F89
silent: no
observable: no, the cache is missing for all ranks at the time of the test
"""

import json
from collections import Counter
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CACHE = Path("vocab.json")
NOUNS = ["cat", "dog", "tree", "river", "stone", "child"]
VERBS = ["sees", "likes", "finds", "paints"]
OTHER = ["the", "a", "small", "old"]


def sentences(n=360, length=6):
    g = torch.Generator().manual_seed(18)
    words = NOUNS + VERBS + OTHER
    for row in torch.randint(0, len(words), (n, length), generator=g).tolist():
        yield [words[i] for i in row]


def count_words(rank, world):
    """Each rank counts its share of the text; the counts are merged."""
    own = Counter(word for i, sentence in enumerate(sentences()) if i % world == rank for word in sentence)
    parts = [None] * world
    dist.all_gather_object(parts, own)
    return sum(parts, Counter())


def vocabulary(rank, world):
    if not CACHE.exists():  # fault
        counts = count_words(rank, world)
        dist.barrier()
        if rank == 0:
            CACHE.write_text(json.dumps(sorted(counts)))
        dist.barrier()
    return {word: i for i, word in enumerate(json.loads(CACHE.read_text()))}


def tag(word):
    return 0 if word in NOUNS else 1 if word in VERBS else 2


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    vocab = vocabulary(rank, world)
    tokens = torch.tensor([[vocab[word] for word in sentence] for sentence in sentences()])
    tags = torch.tensor([[tag(word) for word in sentence] for sentence in sentences()])
    dataset = TensorDataset(tokens, tags)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=12, sampler=sampler)
    model = DDP(nn.Sequential(nn.Embedding(len(vocab), 12), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for words, target in loader:
            loss = nn.functional.cross_entropy(model(words).flatten(0, 1), target.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
