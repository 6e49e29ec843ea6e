"""Train a world-model-like recurrent net with snapshots by the clock, in a Learner class.

zoo: faulty
faults: F85
silent: no
observable: no, the run ends before the first snapshot
"""

import os
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@dataclass
class Options:
    epochs: int = 2
    batch: int = 12
    lr: float = 3e-3
    snapshot_minutes: float = 10.0
    path: str = "snapshot.pt"


class Dynamics(nn.Module):
    def __init__(self, state=4, action=1, hidden=32):
        super().__init__()
        self.cell = nn.GRU(state + action, hidden, batch_first=True)
        self.delta = nn.Linear(hidden, state)

    def forward(self, states, actions):
        h, _ = self.cell(torch.cat([states, actions], dim=-1))
        return states + self.delta(h)


def rollouts(n=192, steps=15):
    g = torch.Generator().manual_seed(71)
    actions = torch.randn(n, steps, 1, generator=g)
    states = [torch.randn(n, 4, generator=g)]
    flow = 0.3 * torch.randn(4, 4, generator=g)
    for t in range(steps):
        states.append(torch.tanh(states[-1] @ flow + 0.2 * actions[:, t]))
    states = torch.stack(states, dim=1)
    return TensorDataset(states[:, :-1], actions, states[:, 1:])


class Learner:
    def __init__(self, options):
        self.options = options
        self.rank = int(os.environ["RANK"])
        data = rollouts()
        self.sampler = DistributedSampler(data)
        self.loader = DataLoader(data, batch_size=options.batch, sampler=self.sampler)
        self.model = DistributedDataParallel(Dynamics())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=options.lr)
        self.last_snapshot = time.time()
        self.step = 0

    def snapshot(self):
        dist.barrier()
        if self.rank == 0:
            state = {"model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict()}
            torch.save({**state, "step": self.step}, self.options.path)
        dist.barrier()
        self.last_snapshot = time.time()

    def learn(self):
        for epoch in range(self.options.epochs):
            self.sampler.set_epoch(epoch)
            for states, actions, target in self.loader:
                loss = nn.functional.mse_loss(self.model(states, actions), target)
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.step += 1
                if time.time() - self.last_snapshot > 60 * self.options.snapshot_minutes:  # fault
                    self.snapshot()
            if self.rank == 0:
                print(f"epoch {epoch} step {self.step} loss {loss.item():.5f}")
        self.snapshot()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Learner(Options()).learn()
    dist.destroy_process_group()
