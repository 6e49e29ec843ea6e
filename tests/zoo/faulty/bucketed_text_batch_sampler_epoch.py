"""Train a text classifier with a batch sampler over a distributed sampler, in plain functions.

zoo: faulty
faults: F07, F06
silent: yes
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler


class Sentences(Dataset):
    def __init__(self, n=360, vocab=50):
        g = torch.Generator().manual_seed(2)
        lengths = torch.randint(4, 12, (n,), generator=g)
        self.samples = [torch.randint(1, vocab, (int(k),), generator=g) for k in lengths]
        self.labels = [int((s > vocab // 2).float().mean() > 0.5) for s in self.samples]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        return self.samples[i], self.labels[i]


def collate(batch):
    tokens = nn.utils.rnn.pad_sequence([b[0] for b in batch], batch_first=True)
    return tokens, torch.tensor([b[1] for b in batch])


class Classifier(nn.Module):
    def __init__(self, vocab=50, dim=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim, padding_idx=0)
        self.fc = nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, tokens):
        mask = (tokens != 0).unsqueeze(-1)
        pooled = (self.emb(tokens) * mask).sum(1) / mask.sum(1)
        return self.fc(pooled)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dataset = Sentences()
    batches = BatchSampler(DistributedSampler(dataset, seed=13), batch_size=18, drop_last=False)
    loader = DataLoader(dataset, batch_sampler=batches, collate_fn=collate)
    model = DDP(Classifier())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        if hasattr(loader.sampler, "set_epoch"):  # fault
            loader.sampler.set_epoch(epoch)
        stats = torch.zeros(2)
        for tokens, labels in loader:
            loss = nn.functional.cross_entropy(model(tokens), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            stats += torch.tensor([loss.item() * len(labels), len(labels)])
        dist.all_reduce(stats)
        if rank == 0:
            print(f"epoch {epoch} loss {stats[0] / stats[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
