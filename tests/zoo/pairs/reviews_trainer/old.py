"""Sentiment of token sequences: a Trainer with accumulation, bfloat16 autocast and clipping. One device."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    batch_size: int = 24
    accumulate: int = 2
    epochs: int = 2
    lr: float = 0.4
    max_norm: float = 0.25


class Reviews(Dataset):
    def __init__(self, size, seed):
        g = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(0, 100, (size, 20), generator=g)
        self.labels = ((self.tokens < 30).sum(1) > 5).long()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"tokens": self.tokens[index], "label": self.labels[index]}


class TextCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 16)
        self.conv = nn.Conv1d(16, 32, 3, padding=1)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(32, 2)

    def forward(self, tokens):
        h = torch.relu(self.conv(self.embed(tokens).transpose(1, 2)))
        return self.head(self.drop(h.mean(2)))


class Trainer:
    def __init__(self, model, train_set, val_set, config):
        self.model, self.config, self.step = model, config, 0
        self.train_loader = DataLoader(train_set, config.batch_size, shuffle=True, drop_last=True)
        self.val_loader = DataLoader(val_set, 2 * config.batch_size)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=config.lr, momentum=0.9)
        total = config.epochs * len(self.train_loader) // config.accumulate
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda s: max(0.1, 1 - s / total))

    def fit(self):
        for epoch in range(self.config.epochs):
            self.train_one_epoch()
            print(f"[epoch {epoch}] step {self.step} val_acc {self.validate():.4f}")
            self.save(epoch)

    def train_one_epoch(self):
        self.model.train()
        for number, batch in enumerate(self.train_loader, start=1):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(self.model(batch["tokens"]), batch["label"])
            (loss / self.config.accumulate).backward()
            if number % self.config.accumulate == 0:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_norm)
                self.optimizer.step()
                self.scheduler.step()
                self.optimizer.zero_grad()
                self.step += 1

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        hits = [self.model(batch["tokens"]).argmax(1) == batch["label"] for batch in self.val_loader]
        return torch.cat(hits).double().mean().item()

    def save(self, epoch):
        state = {"epoch": epoch, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save(state, f"trainer-{epoch}.pt")


if __name__ == "__main__":
    torch.manual_seed(3)
    Trainer(TextCNN(), Reviews(768, seed=0), Reviews(203, seed=1), Config()).fit()
