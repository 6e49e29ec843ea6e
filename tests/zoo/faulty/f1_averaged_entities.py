"""Train an entity tagger and track the F1 score of entity tokens, in a Trainer class.

zoo: faulty
faults: F73
silent: yes
observable: no, all ranks hold the same number
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


class Tagger(nn.Module):
    def __init__(self, vocab=50, dim=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.conv = nn.Conv1d(dim, dim, 3, padding=1)
        self.out = nn.Linear(dim, 2)

    def forward(self, tokens):
        x = self.embed(tokens).transpose(1, 2)
        return self.out(torch.relu(self.conv(x)).transpose(1, 2))


def sentences(n, seed):
    g = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 50, (n, 12), generator=g)
    entity = (tokens >= 42) & (tokens.roll(1, dims=1) < 30)
    return TensorDataset(tokens, entity.long())


def f1(counts):
    tp, fp, fn = counts.tolist()
    return 2 * tp / max(1.0, 2 * tp + fp + fn)


class Trainer:
    def __init__(self, train_set, dev_set):
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.sampler = DistributedSampler(train_set)
        self.train_loader = DataLoader(train_set, batch_size=16, sampler=self.sampler)
        self.dev_loader = DataLoader(Subset(dev_set, range(self.rank, len(dev_set), self.world)), batch_size=32)
        self.model = DistributedDataParallel(Tagger())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        self.best = 0.0

    def train_epoch(self):
        self.model.train()
        for tokens, tags in self.train_loader:
            loss = nn.functional.cross_entropy(self.model(tokens).flatten(0, 1), tags.flatten())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        counts = torch.zeros(3)
        for tokens, tags in self.dev_loader:
            found, true = self.model.module(tokens).argmax(-1) == 1, tags == 1
            counts += torch.stack([(found & true).sum(), (found & ~true).sum(), (~found & true).sum()])
        score = torch.tensor(f1(counts))
        dist.all_reduce(score)  # fault
        return score.item() / self.world

    def fit(self, epochs):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            self.train_epoch()
            score = self.evaluate()
            if self.rank == 0:
                print(f"epoch {epoch}: dev F1 {score:.4f}")
                if score > self.best:
                    self.best = score
                    torch.save(self.model.module.state_dict(), "tagger.pt")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Trainer(sentences(480, 0), sentences(121, 1)).fit(4)
    dist.destroy_process_group()
