"""Train a bag-of-words classifier on documents that are sorted by length and split into contiguous shards.

zoo: faulty
faults: F127
silent: no
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset

WORDS = 500


class Documents(Dataset):
    """Texts from 20 to 400 words, shortest first; a word takes 10 us to look up."""

    def __init__(self, count=480):
        generator = torch.Generator().manual_seed(3)
        lengths = torch.randint(20, 400, (count,), generator=generator).sort().values.tolist()
        self.texts = [torch.randint(0, WORDS, (length,), generator=generator) for length in lengths]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        text = self.texts[index]
        time.sleep(1e-5 * len(text))
        return torch.bincount(text, minlength=WORDS).float(), int((text < WORDS // 2).sum() * 2 > len(text))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    documents = Documents()
    size = len(documents) // world
    shard = Subset(documents, range(rank * size, (rank + 1) * size))  # fault
    sampler = DistributedSampler(shard, num_replicas=1, rank=0, seed=5)
    loader = DataLoader(shard, batch_size=12, sampler=sampler)
    model = DistributedDataParallel(nn.Linear(WORDS, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for counts, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(counts), labels)
            loss.backward()
            optimizer.step()
    if rank == 0:
        print(f"loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
