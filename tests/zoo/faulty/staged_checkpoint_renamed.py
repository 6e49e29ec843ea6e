"""Train a curve fitter with checkpoints that are staged in a folder and renamed when they are complete.

zoo: faulty
faults: F132, F107
silent: no
observable: no, one machine has one first process
"""

import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def curves(n=480):
    g = torch.Generator().manual_seed(13)
    x = 4 * torch.rand(n, 1, generator=g) - 2
    return TensorDataset(x, torch.sin(3 * x) * torch.exp(-x.abs()))


class Fourier(nn.Module):
    def __init__(self, terms=8):
        super().__init__()
        self.register_buffer("frequency", torch.arange(1, terms + 1).float())
        self.out = nn.Linear(2 * terms, 1)

    def forward(self, x):
        angle = x * self.frequency
        return self.out(torch.cat([angle.sin(), angle.cos()], dim=1))


@contextlib.contextmanager
def main_process_first():
    """The first process of a machine goes ahead, the others follow."""
    first = int(os.environ["LOCAL_RANK"]) == 0
    if not first:
        dist.barrier()
    yield
    if first:
        dist.barrier()


class Checkpointer:
    def __init__(self, root):
        self.root = root
        self.rank = dist.get_rank()

    def save(self, epoch, model, optimizer):
        final = os.path.join(self.root, f"epoch-{epoch}")
        staging = os.path.join(self.root, f"tmp-epoch-{epoch}")
        os.makedirs(staging, exist_ok=True)
        torch.save(torch.get_rng_state(), os.path.join(staging, f"rng_{self.rank}.pt"))
        if self.rank == 0:
            torch.save(model.module.state_dict(), os.path.join(staging, "model.pt"))
            torch.save(optimizer.state_dict(), os.path.join(staging, "optimizer.pt"))
        dist.barrier()
        with main_process_first():
            if os.path.exists(staging):
                os.rename(staging, final)  # fault


def main():
    dist.init_process_group("gloo")
    dataset = curves()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=20, sampler=sampler)
    model = DistributedDataParallel(Fourier())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    checkpointer = Checkpointer("run")
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: mse {loss.item():.5f}")
        checkpointer.save(epoch, model, optimizer)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
