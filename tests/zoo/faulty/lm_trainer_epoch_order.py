"""Train an LSTM language model on token blocks, with a Trainer class that saves at the end.

zoo: faulty
faults: F06
silent: yes
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Blocks(Dataset):
    def __init__(self, vocab=24, block=12, count=256):
        start = torch.arange(count) % vocab
        step = 1 + torch.arange(count) % 3
        self.data = (start[:, None] + step[:, None] * torch.arange(block + 1)) % vocab

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return self.data[i, :-1], self.data[i, 1:]


class LSTMModel(nn.Module):
    def __init__(self, vocab=24, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.lstm = nn.LSTM(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens):
        return self.head(self.lstm(self.embed(tokens))[0])


class Trainer:
    def __init__(self, epochs=3, batch_size=16):
        self.rank = dist.get_rank()
        self.epochs = epochs
        self.dataset = Blocks()
        self.model = DDP(LSTMModel())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        self.batch_size = batch_size

    def train_dataloader(self):
        sampler = DistributedSampler(self.dataset, shuffle=True, drop_last=True)  # fault
        return DataLoader(self.dataset, batch_size=self.batch_size, sampler=sampler)

    def training_step(self, batch):
        tokens, targets = batch
        return nn.functional.cross_entropy(self.model(tokens).transpose(1, 2), targets)

    def fit(self):
        for epoch in range(self.epochs):
            losses = []
            for batch in self.train_dataloader():
                loss = self.training_step(batch)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                losses.append(loss.detach())
            mean = torch.stack(losses).mean()
            dist.reduce(mean, dst=0)
            if self.rank == 0:
                print(f"epoch {epoch}: {mean.item() / dist.get_world_size():.4f}")
        self.save("lm.pt")

    def save(self, path):
        if self.rank == 0:
            torch.save(self.model.module.state_dict(), path)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Trainer().fit()
    dist.destroy_process_group()
