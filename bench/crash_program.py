"""Trains a small model and fails on one rank at step 12, in the way that its first argument names.

    paceline run --nproc-per-node 2 bench/crash_program.py KIND RANK

Each line that fails carries `# fails:` and the kind. `crashes.py` looks for these marks.
"""

import ctypes
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

KIND, VICTIM = sys.argv[1], int(os.environ["RANK"]) == int(sys.argv[2])
AT = 12
step = 0


class Numbers(Dataset):
    """Rows of random numbers; one of them cannot be read."""

    def __len__(self):
        return 960

    def __getitem__(self, index):
        if KIND in ("data set", "loader worker") and VICTIM and index // dist_world() >= 8 * AT:
            raise OSError(f"row {index} cannot be read")  # fails: data set, loader worker
        return torch.full((8,), index / 960), torch.tensor([index / 960])


def dist_world():
    """Ranks of the job; loader workers have no process group."""
    return int(os.environ["WORLD_SIZE"])


class Net(nn.Module):
    """Two layers; the second may refuse its input."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 1)

    def forward(self, x):
        """One number a row."""
        hidden = torch.relu(self.first(x))
        if KIND == "forward" and VICTIM and step == AT:
            hidden = hidden @ torch.ones(3, 3)  # fails: forward
        if KIND == "backward hook" and VICTIM and step == AT:
            hidden.register_hook(refuse)
        return self.second(hidden)


def refuse(gradient):
    """A hook that fails."""
    raise RuntimeError(f"gradient of shape {tuple(gradient.shape)} is refused")  # fails: backward hook


def fail():
    """Fail between two steps."""
    if KIND == "assertion":
        assert step < AT, "the loss went up"  # fails: assertion
    elif KIND == "os._exit":
        os._exit(3)  # fails: os._exit
    elif KIND == "sys.exit":
        sys.exit(1)  # fails: sys.exit
    elif KIND == "SIGSEGV":
        ctypes.string_at(0)  # fails: SIGSEGV
    elif KIND == "SIGKILL":
        os.kill(os.getpid(), signal.SIGKILL)  # fails: SIGKILL
    elif KIND == "MemoryError":
        bytearray(1 << 62)  # fails: MemoryError


def main():
    """Train."""
    global step
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = Numbers()
    sampler = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=int(KIND == "loader worker"))
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if VICTIM and step == AT:
            fail()
        if step % 6 == 0:
            total = loss.detach().clone()
            if KIND == "before a collective" and VICTIM and step == AT:
                total = total.numpy()["loss"]  # fails: before a collective
            dist.all_reduce(total)
    dist.destroy_process_group()


main()
