"""What runs on ranks in the tests of probes."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from paceline.observe.collective_trace import CollectiveTrace
from paceline.observe.fingerprint import fingerprint
from paceline.observe.step_count import StepWatch
from paceline.records.observed import Collective, Fingerprint


def network() -> nn.Module:
    """8,048,040 bytes of gradients in three layers, with batch norm."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(1000, 1000), nn.BatchNorm1d(1000), nn.Linear(1000, 1000), nn.Linear(1000, 10))


def trained(watched: bool, steps: int = 4) -> list[bytes]:
    """Weights after some steps of DDP with momentum on each rank's own data."""
    with CollectiveTrace() if watched else contextlib.nullcontext():
        model = DistributedDataParallel(network(), bucket_cap_mb=1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        torch.manual_seed(dist.get_rank())
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(6, 1000)).square().mean().backward()
            optimizer.step()
    return [p.detach().numpy().tobytes() for p in model.parameters()]


def some_calls(folder: str) -> tuple[list[Collective], list[int], str]:
    """A backward of DDP, a group of its own, a send: the calls, which of them are done, trouble."""
    rank = dist.get_rank()
    with CollectiveTrace(Path(folder) / f"rank-{rank}.jsonl") as trace:
        model = DistributedDataParallel(nn.Linear(3, 2, bias=False))
        model(torch.ones(1, 3)).sum().backward()
        group = dist.new_group([0, 1])
        dist.all_reduce(torch.ones(5, dtype=torch.float64), group=group)
        work = dist.all_reduce(torch.ones(7), async_op=True)
        work.wait()
        if rank == 0:
            dist.send(torch.ones(2), 1)
        else:
            dist.recv(torch.ones(2), 0)
        dist.broadcast(torch.ones(3, dtype=torch.int64), src=1)
        time.sleep(0.05)  # completions are told by a thread of the backend
    dist.all_reduce(torch.ones(1))  # no longer watched
    return trace.calls, sorted(trace.done_s), trace.trouble


def nothing() -> None:
    """A rank that has its modules and leaves."""


def one_stays_away(folder: str) -> None:
    """All ranks meet three times; then rank 1 is busy elsewhere and the others wait."""
    rank = dist.get_rank()
    CollectiveTrace(Path(folder) / f"rank-{rank}.jsonl").start()
    for _ in range(3):
        dist.all_reduce(torch.ones(4))
    if rank == 1:
        elsewhere()
    dist.all_reduce(torch.ones(4))


def elsewhere() -> None:
    """Without end."""
    while True:
        time.sleep(0.01)


def different_calls(folder: str) -> None:
    """Rank 0 broadcasts while rank 1 reduces."""
    rank = dist.get_rank()
    CollectiveTrace(Path(folder) / f"rank-{rank}.jsonl").start()
    dist.barrier()
    if rank == 0:
        dist.all_gather([torch.ones(4), torch.ones(4)], torch.ones(4))
    else:
        dist.all_reduce(torch.ones(6))


def fingerprints(fault: str) -> list[Fingerprint]:
    """Of a wrapped model after two steps, with and without randomness."""
    rank = dist.get_rank()
    model = DistributedDataParallel(network(), broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(rank)
    for _ in range(2):
        optimizer.zero_grad()
        inputs = torch.randn(4, 1000)
        # The fault: a forward past the wrapper is not synchronised.
        outputs = model.module(inputs) if fault == "module" else model(inputs)
        outputs.sum().backward()
        optimizer.step()
    if fault == "rate" and rank == 1:
        optimizer.param_groups[0]["lr"] = 0.2
    return [
        fingerprint(model, optimizer, rank=rank, step=2),
        fingerprint(model, optimizer, rank=rank, step=2, randomness=True),
    ]


def random_numbers_after(probe: bool) -> Any:
    """What the generators give next."""
    torch.manual_seed(0)
    if probe:
        fingerprint(network(), randomness=True)
    else:
        network()
    return torch.rand(3).tolist()


def stepped(fault: str) -> tuple[list[str], int, int, str]:
    """Digests after three steps of DDP, wrapped models, optimizers, trouble."""
    rank = dist.get_rank()
    before = DistributedDataParallel.__init__
    with StepWatch(most=2) as watch:
        model = DistributedDataParallel(nn.Linear(4, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.manual_seed(rank)
        for _ in range(3):
            optimizer.zero_grad()
            inputs = torch.randn(5, 4)
            (model.module(inputs) if fault else model(inputs)).sum().backward()
            optimizer.step()
    if DistributedDataParallel.__init__ is not before:
        return [], 0, 0, "DDP was left changed"
    return watch.digests, len(watch.wrapped), watch.steps, watch.trouble
