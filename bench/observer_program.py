"""The training that bench/observer.py times: DDP on synthetic data, in blocks with and without the observer."""

import json
import random
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from paceline.observe.schedule import is_recorded

BATCH = 64
WIDTHS = {1: 64, 5: 448, 20: 1024}
"""Width of the hidden layers by approximate step time in milliseconds."""
KINDS = ("observed", "unobserved", "control")
WARM_UP = 200
"""Steps before the first block, under observation: by then the observer records one step in eight."""


def run(given: bytes) -> int:
    """A rank: time blocks of every kind, and write them as JSON.

    Args:
        given: as JSON, `step_ms`, `rounds`, `steps` of a block, `observe` and the `output` file. Without `observe` no
            block is observed, which is how peak memory is compared.
    """
    job = json.loads(given)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    session = None
    if job["observe"]:
        from paceline.observe.attach import attach_to_rank
        from paceline.observe.probes.data_loaders import DataLoaders

        session = attach_to_rank().session
        loaders = next(probe for probe in session.probes if isinstance(probe, DataLoaders))
        loaders._every_pass = True  # blocks are short passes: record the indices of each, as in a first epoch
    training = _training(job["step_ms"], job["steps"])
    for _ in range(-(-WARM_UP // job["steps"])):
        next(training)
    found: dict[str, Any] = {kind: {"step_s": [], "cpu_s": [], "recorded": []} for kind in KINDS}
    order = random.Random(0)  # all ranks choose the same order
    for _ in range(job["rounds"]):
        for kind in order.sample(KINDS, len(KINDS)):
            if session is not None:
                (session.arm if kind == "observed" else session.disarm)()
            first = session.progress.step if session is not None else 0
            block = next(training)
            for number, name in enumerate(("step_s", "cpu_s")):
                found[kind][name].append([each[number] for each in block])
            # The first step of a block is not timed.
            numbers = range(first + 2, first + 2 + len(block))
            # What a step leaves is digested at the start of the next one.
            found[kind]["recorded"].append([is_recorded(each) or is_recorded(each - 1) for each in numbers])
    found["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    Path(f"{job['output']}.{dist.get_rank()}").write_text(json.dumps(found))
    dist.destroy_process_group()
    return 0


def _training(step_ms: int, steps: int) -> Iterator[list[tuple[float, float]]]:
    """Train an epoch at each `next`. Yields seconds and processor time of each step but the first."""
    torch.manual_seed(0)
    width, samples = WIDTHS[step_ms], BATCH * dist.get_world_size() * steps
    data = TensorDataset(torch.randn(samples, 32), torch.randint(0, 10, (samples,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler)
    model = DistributedDataParallel(
        nn.Sequential(
            nn.Linear(32, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, 10),
        )
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1000)
    for epoch in range(sys.maxsize):
        sampler.set_epoch(epoch)
        dist.barrier()
        clock: list[tuple[float, float]] = []
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            clock.append((time.perf_counter(), time.process_time()))
        yield [(wall - last, used - spent) for (wall, used), (last, spent) in zip(clock[1:], clock, strict=False)]
