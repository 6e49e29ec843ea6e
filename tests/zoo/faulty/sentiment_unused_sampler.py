"""Train a bag-of-words sentiment classifier, with separate builders for data and model.

zoo: faulty
faults: F03, F01
silent: yes
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

VOCAB, LENGTH = 200, 20


class Reviews(Dataset):
    def __init__(self, count):
        g = torch.Generator().manual_seed(11)
        self.tokens = torch.randint(0, VOCAB, (count, LENGTH), generator=g)
        self.labels = ((self.tokens < VOCAB // 2).float().mean(1) > 0.5).float()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.tokens[i], self.labels[i]


class BagOfWords(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(VOCAB, 16, mode="mean")
        self.head = nn.Linear(16, 1)

    def forward(self, tokens):
        return self.head(self.bag(tokens)).squeeze(-1)


def build_data(batch_size):
    dataset = Reviews(480)
    sampler = DistributedSampler(dataset, shuffle=True, seed=1)
    return dataset, sampler, {"batch_size": batch_size, "num_workers": 0, "pin_memory": False}


def build_model():
    model = DistributedDataParallel(BagOfWords())
    return model, torch.optim.Adam(model.parameters(), lr=0.02)


def main():
    dist.init_process_group("gloo")
    dataset, sampler, loader_args = build_data(batch_size=24)
    model, optimizer = build_model()
    criterion = nn.BCEWithLogitsLoss()
    loader = DataLoader(dataset, shuffle=True, **loader_args)  # fault
    for epoch in range(3):
        sampler.set_epoch(epoch)
        totals = torch.zeros(3)
        for tokens, labels in loader:
            logits = model(tokens)
            loss = criterion(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            hits = ((logits > 0) == labels.bool()).sum()
            totals += torch.tensor([loss.item() * len(labels), hits.item(), len(labels)])
        dist.all_reduce(totals)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {totals[0] / totals[2]:.3f} accuracy {totals[1] / totals[2]:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
