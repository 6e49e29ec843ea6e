"""Train a GRU forecaster on sliding windows, in a flat script.

zoo: faulty
faults: F02, F01
silent: yes
"""

import math
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Windows(Dataset):
    def __init__(self, series, length=12):
        self.series, self.length = series, length

    def __len__(self):
        return len(self.series) - self.length

    def __getitem__(self, i):
        w = self.series[i : i + self.length + 1]
        return w[:-1].unsqueeze(-1), w[-1]


class Forecaster(nn.Module):
    def __init__(self, hidden=16):
        super().__init__()
        self.rnn = nn.GRU(1, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.out(h[:, -1]).squeeze(-1)


def main():
    dist.init_process_group(backend="gloo", init_method="env://")
    rank = int(os.environ["RANK"])
    t = torch.arange(412, dtype=torch.float32)
    series = torch.sin(t * 2 * math.pi / 24) + 0.5 * torch.sin(t * 2 * math.pi / 7)
    loader = DataLoader(Windows(series), batch_size=20, num_workers=1)  # fault

    net = DDP(Forecaster())
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=3 * len(loader))
    for epoch in range(3):
        seen, acc = 0, 0.0
        for x, y in loader:
            opt.zero_grad()
            loss = (net(x) - y).pow(2).mean()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            sched.step()
            acc, seen = acc + loss.item() * len(y), seen + len(y)
        agg = torch.tensor([acc, seen], dtype=torch.float64)
        dist.all_reduce(agg)
        if rank == 0:
            print(f"epoch {epoch}  mse {agg[0] / agg[1]:.5f}  lr {sched.get_last_lr()[0]:.5f}")


if __name__ == "__main__":
    main()
