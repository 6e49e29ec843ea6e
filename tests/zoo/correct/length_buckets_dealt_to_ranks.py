"""Train a text classifier with batches of similar length; whole batches are dealt to the ranks.

zoo: correct
"""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Texts(Dataset):
    def __init__(self, n=384, vocab=50):
        g = torch.Generator().manual_seed(2)
        lengths = torch.randint(4, 20, (n,), generator=g).tolist()
        self.samples = [torch.randint(1, vocab, (k,), generator=g) for k in lengths]
        self.labels = [int((s > vocab // 2).float().mean() > 0.5) for s in self.samples]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        return self.samples[i], self.labels[i]


class BucketBatchSampler:
    def __init__(self, lengths, batch_size, rank, world, seed=0):
        order = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
        self.batches = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
        assert len(lengths) % batch_size == 0 and len(self.batches) % world == 0
        self.rank, self.world, self.seed, self.epoch = rank, world, seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return len(self.batches) // self.world

    def __iter__(self):
        batches = list(self.batches)
        random.Random(self.seed + self.epoch).shuffle(batches)
        yield from batches[self.rank :: self.world]


def collate(batch):
    texts, labels = zip(*batch)
    return nn.utils.rnn.pad_sequence(texts, batch_first=True), torch.tensor(labels)


class Net(nn.Module):
    def __init__(self, vocab=50, dim=24):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim, padding_idx=0)
        self.fc = nn.Linear(dim, 2)

    def forward(self, tokens):
        return self.fc(self.emb(tokens).sum(1) / (tokens != 0).sum(1, keepdim=True))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    dataset = Texts()
    batches = BucketBatchSampler([len(s) for s in dataset.samples], 12, rank, world)
    loader = DataLoader(dataset, batch_sampler=batches, collate_fn=collate, num_workers=1)
    model = DDP(Net())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    for epoch in range(3):
        batches.set_epoch(epoch)
        total = torch.zeros(2)
        for tokens, labels in loader:
            loss = nn.functional.cross_entropy(model(tokens), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item() * len(labels), len(labels)])
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {total[0] / total[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
