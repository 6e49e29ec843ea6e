"""The training that bench/observer.py times: DDP on synthetic data, with a step of about the length that is asked for.

    python bench/observer_program.py STEP_MS STEPS FILE

Writes its times as JSON into FILE.<rank>: the duration of each step after a warm-up, processor time, peak memory.
"""

import json
import resource
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

BATCH = 64
WIDTHS = {1: 64, 5: 448, 20: 1024}
"""Width of the hidden layers by approximate step time in milliseconds."""
WARM_UP = 60


def main(step_ms: str, steps: str, path: str) -> None:
    """Train and write the times."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    width, total = WIDTHS[int(step_ms)], WARM_UP + int(steps)
    world = dist.get_world_size()
    data = TensorDataset(torch.randn(BATCH * world * total, 32), torch.randint(0, 10, (BATCH * world * total,)))
    loader = DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data))
    model = DistributedDataParallel(
        nn.Sequential(
            nn.Linear(32, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, 10),
        )
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
    durations, began, spent = [], time.perf_counter(), 0.0
    for number, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        now = time.perf_counter()
        if number == WARM_UP:
            spent = time.process_time()
        elif number > WARM_UP:
            durations.append(now - began)
        began = now
    spent = time.process_time() - spent
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found = {"durations_s": durations, "cpu_s": spent, "peak_bytes": peak}
    Path(f"{path}.{dist.get_rank()}").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
