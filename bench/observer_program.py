"""The training that bench/observer.py times: DDP on synthetic data, in blocks with and without the observer."""

import itertools
import json
import random
import resource
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

        session = attach_to_rank().session
    training = _Training(job["step_ms"], WARM_UP + len(KINDS) * job["rounds"] * job["steps"])
    # Two long passes over the loader, one of which begins under observation.
    watched = iter(training.loader)
    training.block(watched, WARM_UP)
    if session is not None:
        session.disarm()
    plain = iter(training.loader)
    found: dict[str, Any] = {kind: {"step_s": [], "cpu_s": [], "recorded": []} for kind in KINDS}
    order = random.Random(0)  # all ranks choose the same order
    for _ in range(job["rounds"]):
        for kind in order.sample(KINDS, len(KINDS)):
            observed = kind == "observed"
            if session is not None:
                (session.arm if observed else session.disarm)()
            first = session.progress.step if session is not None else 0
            block = training.block(watched if observed else plain, job["steps"])
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


class _Training:
    """DDP on synthetic data, `steps` at most in a pass over `loader`."""

    def __init__(self, step_ms: int, steps: int) -> None:
        torch.manual_seed(0)
        width, samples, features = WIDTHS[step_ms], BATCH * dist.get_world_size() * steps, 32
        # Windows over one row of numbers: as many samples as the pass needs, without their memory.
        inputs = torch.randn(samples + features).as_strided((samples, features), (1, 1))
        data = TensorDataset(inputs, torch.randint(0, 10, (samples,)))
        self.loader = DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data))
        self._model = DistributedDataParallel(
            nn.Sequential(
                nn.Linear(features, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width),
                nn.ReLU(), nn.Linear(width, 10),
            )
        )  # fmt: skip
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.01, momentum=0.9)
        self._scheduler = torch.optim.lr_scheduler.StepLR(self._optimizer, 1000)

    def block(self, batches: Iterator[Any], steps: int) -> list[tuple[float, float]]:
        """Train on the next batches. Returns seconds and processor time of each step but the first."""
        dist.barrier()
        clock: list[tuple[float, float]] = []
        for x, y in itertools.islice(batches, steps):
            loss = nn.functional.cross_entropy(self._model(x), y)
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()
            self._scheduler.step()
            clock.append((time.perf_counter(), time.process_time()))
        return [(after[0] - before[0], after[1] - before[1]) for before, after in itertools.pairwise(clock)]
