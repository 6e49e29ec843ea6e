"""One rank of a network probe: `python -m paceline.studies.probe_worker`, started by `probe`.

All-reduces of several sizes, in rounds, so that a slow stretch of the machine does not fall on one size alone. The time
of one is that of its slowest rank, from a barrier on.
"""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import msgspec
import torch
import torch.distributed as dist

from paceline.parallel.rank_context import RankContext, StopRequest, init_rank_context, join, run_as_rank
from paceline.records.errors import Exit
from paceline.records.rundir import write_atomic

HANDOVER = "PACELINE_PROBE"
LEAST_ROUNDS = 5


@dataclass(frozen=True)
class Handover:
    """What the launcher tells its ranks: sizes, seconds in all, and where rank 0 leaves the result."""

    sizes: list[int]
    seconds: float
    result: str


def run_rank(stop: StopRequest) -> int:
    """Measure, and leave the medians; rank 0 writes."""
    handover = msgspec.json.decode(os.environ[HANDOVER], type=Handover)
    context = init_rank_context(["paceline", "plan", "speed"])
    join(context, 60.0)
    stop.install()
    times = measure(handover.sizes, handover.seconds, context, stop)
    if context.env.rank == 0:
        medians = {size: statistics.median(each) for size, each in times.items() if each}
        write_atomic(Path(handover.result), msgspec.json.encode(medians))
    return int(Exit.INTERRUPTED if stop.interrupt else Exit.TERMINATED if stop.terminate else Exit.OK)


def measure(sizes: list[int], seconds: float, context: RankContext, stop: StopRequest) -> dict[int, list[float]]:
    """Times of all-reduces by their size in bytes, for about so many seconds; at least `LEAST_ROUNDS` of each."""
    tensors = {size: torch.zeros(size // 4, dtype=torch.float32, device=context.device) for size in sizes}
    times: dict[int, list[float]] = {size: [] for size in sizes}
    began, rounds = time.perf_counter(), 0
    while True:
        for size, tensor in tensors.items():
            spent = _one(tensor, context.device)
            if rounds:  # the first round makes connections and buffers
                times[size].append(spent)
        rounds += 1
        enough = rounds > LEAST_ROUNDS and time.perf_counter() - began > seconds
        # All stop after the same round, when one has had enough or was told to.
        over = torch.tensor([float(enough), *stop.wishes()], device=context.device)
        dist.all_reduce(over, op=dist.ReduceOp.MAX)
        if bool(over.any()):
            return times


def _one(tensor: torch.Tensor, device: torch.device) -> float:
    dist.barrier()
    began = time.perf_counter()
    dist.all_reduce(tensor)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    slowest = torch.tensor(time.perf_counter() - began, dtype=torch.float64, device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return float(slowest)


def main(given: bytes) -> NoReturn:
    """The whole life of a rank."""
    del given
    run_as_rank(run_rank)
