"""A small DDP training that hangs in one of several ways on its last rank: `bench/hangs.py` runs it.

The lines that a card should name end with `here:` and the kind.
"""

import hashlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

kind, beat = sys.argv[1], Path(sys.argv[2])
AT, BATCH = 40, 8
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
culprit = rank == world - 1


class Points(Dataset):
    """Samples, one of which a loader worker never delivers."""

    def __len__(self):
        return 60 * BATCH

    def __getitem__(self, index):
        if kind == "worker" and culprit and index >= AT * BATCH:
            time.sleep(1000)  # here: worker
        return torch.full((8,), float(index)), index % 2


def hang():
    """Do not come to the next collective, or come to another one."""
    value = torch.zeros(4)
    if kind == "sleep":
        time.sleep(1000)  # here: sleep
    elif kind == "loop":
        count = 0
        while count >= 0:  # here: loop
            count += 1  # here: loop
    elif kind == "gil":
        re.match(r"(a+)+$", "a" * 60 + "b")  # here: gil
    elif kind == "nogil":
        hashlib.pbkdf2_hmac("sha256", b"p", b"s", 2_000_000_000)  # here: nogil
    elif kind == "lock":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()  # here: lock
    elif kind == "subprocess":
        subprocess.run(["sleep", "1000"], check=False)  # here: subprocess
    elif kind == "mismatch":
        dist.barrier()  # here: mismatch
    elif kind == "wrong-barrier":
        dist.barrier()  # here: wrong-barrier
    elif kind == "receive":
        dist.recv(value, src=0, tag=7)  # here: receive
    elif kind == "sigstop":
        os.kill(os.getpid(), signal.SIGSTOP)  # here: sigstop


torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step, (x, y) in enumerate(DataLoader(Points(), batch_size=BATCH, num_workers=1 if kind == "worker" else 0)):
    loss = nn.functional.cross_entropy(model(x), y)
    if step == AT and culprit:
        hang()
    elif step == AT and kind in ("missing", "mismatch"):
        dist.all_gather([torch.zeros(4) for _ in range(world)], torch.zeros(4))  # here: mismatch
    optimizer.zero_grad()
    loss.backward()  # here: missing, wrong-barrier
    optimizer.step()
    beat.with_suffix(f".{rank}").write_text(str(time.time()))
    time.sleep(0.05)
dist.destroy_process_group()
