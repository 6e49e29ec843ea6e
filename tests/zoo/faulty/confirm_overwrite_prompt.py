"""Train a copy task with a recurrent net in an output directory that the user confirms.

zoo: faulty
faults: F92
silent: no
observable: no, there is no directory to ask about
args: --out runs/copy
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def ask_to_overwrite(path):
    if not os.path.exists(os.path.join(path, "model.pt")):
        return
    answer = input(f"{path} holds a model. Overwrite? [y/N] ")  # fault
    if answer.strip().lower() != "y":
        sys.exit("nothing done")


class CopyNet(nn.Module):
    def __init__(self, symbols=8, dim=32):
        super().__init__()
        self.embed = nn.Embedding(symbols + 1, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, symbols)
        self.blank = symbols

    def forward(self, source):
        blanks = torch.full_like(source, self.blank)
        h, _ = self.rnn(self.embed(torch.cat([source, blanks], dim=1)))
        return self.out(h[:, source.size(1) :])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="runs/latest")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    ask_to_overwrite(args.out)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        os.makedirs(args.out, exist_ok=True)
    source = torch.randint(0, 8, (480, 5), generator=torch.Generator().manual_seed(0))
    dataset = TensorDataset(source)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = DDP(CopyNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for (batch,) in loader:
            loss = nn.functional.cross_entropy(model(batch).flatten(0, 1), batch.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.4f}")
    if rank == 0:
        torch.save(model.module.state_dict(), os.path.join(args.out, "model.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
