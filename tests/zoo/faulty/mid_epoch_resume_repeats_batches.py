"""Train a sentence-order model with a checkpoint every few steps, in a Trainer class that can resume.

zoo: faulty
faults: F99
silent: yes
observable: no, it takes an interrupted and an uninterrupted run to see it
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class OrderNet(nn.Module):
    def __init__(self, words=60, dim=24):
        super().__init__()
        self.embed = nn.Embedding(words, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.cls = nn.Linear(dim, 2)

    def forward(self, tokens):
        return self.cls(self.rnn(self.embed(tokens))[1][-1])


def ordered(n=480, length=8):
    g = torch.Generator().manual_seed(16)
    tokens = torch.randint(0, 50, (n, 1), generator=g) + torch.arange(length)
    swapped = torch.arange(n) % 2 == 1
    tokens[swapped] = tokens[swapped].roll(length // 2, dims=1)
    return TensorDataset(tokens, swapped.long())


class Trainer:
    def __init__(self, path="trainer_state.pt", save_steps=10, epochs=2):
        self.path, self.save_steps, self.epochs = path, save_steps, epochs
        self.rank = int(os.environ["RANK"])
        data = ordered()
        self.sampler = DistributedSampler(data, seed=3)
        self.loader = DataLoader(data, batch_size=16, sampler=self.sampler)
        self.model = DistributedDataParallel(OrderNet())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.scheduler = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, 0.1, epochs * len(self.loader))
        self.global_step = self.start_epoch = 0

    def state(self, epoch):
        return {
            "model": self.model.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "epoch": epoch,
            "global_step": self.global_step,
        }

    def resume(self):
        found = [os.path.exists(self.path)]
        dist.broadcast_object_list(found, src=0)
        if not found[0]:
            return
        state = torch.load(self.path, map_location="cpu")
        self.model.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.start_epoch, self.global_step = state["epoch"], state["global_step"]

    def train(self):
        self.resume()
        for epoch in range(self.start_epoch, self.epochs):
            self.sampler.set_epoch(epoch)
            for tokens, label in self.loader:  # fault
                loss = nn.functional.cross_entropy(self.model(tokens), label)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.scheduler.step()
                self.global_step += 1
                if self.global_step % self.save_steps == 0 and self.rank == 0:
                    torch.save(self.state(epoch), self.path)
            if self.rank == 0:
                print(f"epoch {epoch} step {self.global_step} loss {loss.item():.4f}")
        dist.barrier()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Trainer().train()
    dist.destroy_process_group()
