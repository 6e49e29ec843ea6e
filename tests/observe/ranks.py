"""What runs on ranks in the tests of probes."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from paceline.observe.model_registry import ModelRegistry
from paceline.observe.probes import group_collectives
from paceline.observe.probes.backward_passes import BackwardPasses
from paceline.observe.probes.group_collectives import GroupCollectives
from paceline.observe.probes.optimizer_steps import OptimizerSteps
from paceline.observe.probes.replica_state import ReplicaState
from paceline.observe.probes.wrapped_models import WrappedModels
from paceline.observe.session import Probe, Session, Topic
from paceline.observe.sinks import ImmediateSink, MemorySink
from paceline.records.event import Event
from paceline.records.observed import Collective, CollectiveDone, Fingerprint
from paceline.records.observed_rank import ObservedStep


def network() -> nn.Module:
    """8,048,040 bytes of gradients in three layers, with batch norm."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(1000, 1000), nn.BatchNorm1d(1000), nn.Linear(1000, 1000), nn.Linear(1000, 10))


def trained(watched: bool, steps: int = 4) -> list[bytes]:
    """Weights after some steps of DDP with momentum on each rank's own data."""
    with Session(MemorySink(), [GroupCollectives()]) if watched else contextlib.nullcontext():
        model = DistributedDataParallel(network(), bucket_cap_mb=1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        torch.manual_seed(dist.get_rank())
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(6, 1000)).square().mean().backward()
            optimizer.step()
    return [p.detach().numpy().tobytes() for p in model.parameters()]


class _SlowBackward(torch.autograd.Function):
    """Sleeps in the backward pass of rank 1."""

    @staticmethod
    def forward(ctx, x):
        """The same tensor."""
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        """The same gradient, later."""
        time.sleep(0.1 * (dist.get_rank() == 1))
        return gradient


def late_in_backward(steps: int = 4) -> list[tuple[float, float]]:
    """For each step, how long this rank took for its own part of the backward pass, and how long it waited in DDP."""
    sink, models = MemorySink(), ModelRegistry()
    with Session(sink, [BackwardPasses(models), OptimizerSteps(models)]):
        model = DistributedDataParallel(nn.Linear(4, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(steps):
            _SlowBackward.apply(model(torch.ones(2, 4))).sum().backward()
            optimizer.step()
    times = [(each.backward_begun_s, each.backward_done_s, each.backward_ended_s) for each in sink.of(ObservedStep)]
    return [(done - begun, ended - done) for begun, done, ended in times]


class Both(MemorySink):
    """Keeps events and writes them to a file at once."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = ImmediateSink(path)

    def emit(self, event: Event) -> None:
        """Keep and write an event."""
        super().emit(event)
        self._file.emit(event)


def traced(folder: str) -> Session:
    """Writes the collectives of this rank to a file of its own."""
    return Session(ImmediateSink(Path(folder) / f"rank-{dist.get_rank()}.jsonl"), [GroupCollectives()])


def some_calls(folder: str) -> tuple[list[Collective], list[int], dict[str, str]]:
    """A backward of DDP, a group of its own, a send: the calls, which of them are done, failed probes."""
    rank = dist.get_rank()
    sink = Both(Path(folder) / f"rank-{rank}.jsonl")
    with Session(sink, [GroupCollectives()]) as session:
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
    return sink.of(Collective), sorted(each.seq for each in sink.of(CollectiveDone)), session.failed


def reduced_beside_a_broken_probe() -> tuple[float, list[str]]:
    """A sum over ranks, and why the probe failed that looked on."""
    broken = mock.patch.object(group_collectives, "user_place_and_backward", side_effect=KeyError("numel"))
    with broken, Session(MemorySink(), [GroupCollectives()]) as session:
        value = torch.ones(1)
        dist.all_reduce(value)
    return value.item(), list(session.failed.values())


def nothing() -> None:
    """A rank that has its modules and leaves."""


def one_stays_away(folder: str) -> None:
    """All ranks meet three times; then rank 1 is busy elsewhere and the others wait."""
    rank = dist.get_rank()
    traced(folder).arm()
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
    traced(folder).arm()
    dist.barrier()
    if rank == 0:
        dist.all_gather([torch.ones(4), torch.ones(4)], torch.ones(4))
    else:
        dist.all_reduce(torch.ones(6))


def of_state() -> list[Probe]:
    """Probes that digest state, and what they listen to."""
    models = ModelRegistry()
    return [ReplicaState(models), OptimizerSteps(models), WrappedModels(models)]


def fingerprints(fault: str) -> list[Fingerprint]:
    """Of a wrapped model during two steps."""
    sink = MemorySink()
    with Session(sink, of_state(), rank=dist.get_rank()) as session:
        model = DistributedDataParallel(network(), broadcast_buffers=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        torch.manual_seed(dist.get_rank())
        for _ in range(2):
            optimizer.zero_grad()
            inputs = torch.randn(4, 1000)
            # The fault: a forward past the wrapper is not synchronised.
            outputs = model.module(inputs) if fault == "module" else model(inputs)
            outputs.sum().backward()
            optimizer.step()
        session.announce(Topic.SCRIPT_ENDS)
    return sink.of(Fingerprint)
