"""Train a text-to-number model that resumes by itself, for use on a preemptible cluster.

zoo: faulty
faults: F89
silent: yes
observable: no, on one machine all ranks find the same files
"""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CHECKPOINT = os.environ.get("CHECKPOINT", "checkpoint.pt")
EPOCHS = 3


def numbers(n=480, digits=4):
    d = torch.randint(0, 10, (n, digits), generator=torch.Generator().manual_seed(2))
    value = (d * 10 ** torch.arange(digits - 1, -1, -1)).sum(1)
    return TensorDataset(d, value / 10**digits)


class Reader(nn.Module):
    def __init__(self, dim=20):
        super().__init__()
        self.embed = nn.Embedding(10, dim)
        self.rnn = nn.RNN(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, 1)

    def forward(self, digits):
        return self.out(self.rnn(self.embed(digits))[0][:, -1]).squeeze(1)


def save(model, optimizer, sched, epoch):
    if dist.get_rank() == 0:
        state = {
            "model": model.module.state_dict(),
            "optimizer": optimizer.state_dict(),
            "sched": sched.state_dict(),
            "epoch": epoch,
        }
        torch.save(state, CHECKPOINT + ".part")
        os.replace(CHECKPOINT + ".part", CHECKPOINT)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dataset = numbers()
    sampler = DistributedSampler(dataset, seed=6)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = Reader()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    start = 0
    if os.path.isfile(CHECKPOINT):  # fault
        state = torch.load(CHECKPOINT, map_location="cpu")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        sched.load_state_dict(state["sched"])
        start = state["epoch"] + 1
    model = DistributedDataParallel(model)
    for epoch in range(start, EPOCHS):
        sampler.set_epoch(epoch)
        error = torch.zeros(2)
        for digits, value in loader:
            loss = nn.functional.mse_loss(model(digits), value)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            error += torch.tensor([loss.item(), 1.0])
        sched.step()
        dist.all_reduce(error)
        if rank == 0:
            print(f"epoch {epoch}: mse {error[0] / error[1]:.5f}")
        save(model, optimizer, sched, epoch)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
