"""Measure what a message and a step cost on this machine, for the questions of answers.toml.

    torchrun --standalone --nproc-per-node 2 measure.py --out comm.csv

It takes some fifteen seconds, with two processes, and writes beside each other

    comm.csv       collective,bytes,seconds    one all-reduce between the two processes, for messages of many sizes
    compute.csv    batch,seconds               one step of one process without any message, for batches of many sizes

Times are medians over rounds that go through all sizes, so that a slow moment of the machine hits all of them. Let
nothing else run meanwhile.
"""

import argparse
import csv
import os
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from signals import Signals, make_model

SIZES = [4**power for power in range(5, 12)]  # bytes of a message: 1 KiB to 4 MiB
BATCHES = [8, 16, 32, 64, 128, 256, 512]
ROUNDS = 15  # at most, and LEAST at least; in between the time decides
LEAST, SECONDS = 4, 3.5


def time_message(size):
    """Seconds of one all-reduce of so many bytes of float32."""
    message = torch.zeros(size // 4)
    repeats = 10 if size <= 65536 else 2
    dist.all_reduce(message)  # both begin together
    began = time.perf_counter()
    for _ in range(repeats):
        dist.all_reduce(message)
    return (time.perf_counter() - began) / repeats


def time_step(model, optimizer, data, batch):
    """Seconds of one step by itself: read a batch, forward, backward, update."""
    repeats = 4 if batch <= 64 else 1
    began = time.perf_counter()
    for _ in range(repeats):
        signals, labels = data.batch(range(batch))
        loss = nn.functional.cross_entropy(model(signals), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (time.perf_counter() - began) / repeats


def over_rounds(name, sizes, measure):
    """The median time of each size, as the slower of the two processes sees it."""
    times = {size: [] for size in sizes}
    for size in sizes:
        measure(size)  # warms up
    began = time.perf_counter()
    for number in range(1, ROUNDS + 1):
        for size in sizes:
            dist.barrier()
            times[size].append(measure(size))
        # Clocks differ: process 0 says whether there is time for another round.
        enough = torch.tensor(number >= LEAST and time.perf_counter() - began > SECONDS)
        dist.broadcast(enough, src=0)
        if dist.get_rank() == 0:
            print(f"{name}: round {number} of at most {ROUNDS}", flush=True)
        if enough:
            break
    medians = torch.tensor([statistics.median(times[size]) for size in sizes], dtype=torch.float64)
    dist.all_reduce(medians, op=dist.ReduceOp.MAX)
    return medians.tolist()


def write(path, columns, rows):
    """All lines, whole or not at all."""
    fresh = path.with_suffix(".new")
    with fresh.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    fresh.replace(path)
    print(f"wrote {path}")


def main():
    """Messages first, then steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("comm.csv"), help="for messages; compute.csv comes beside it")
    options = parser.parse_args()
    if os.environ.get("WORLD_SIZE") != "2":
        sys.exit("start it with two processes: torchrun --standalone --nproc-per-node 2 measure.py --out comm.csv")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    messages = over_rounds("messages", SIZES, time_message)

    data, model = Signals(max(BATCHES), seed=1), make_model("plain", seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    steps = over_rounds("steps", BATCHES, lambda batch: time_step(model, optimizer, data, batch))

    if dist.get_rank() == 0:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        rows = [("all_reduce", size, f"{seconds:.9f}") for size, seconds in zip(SIZES, messages, strict=True)]
        write(options.out, ("collective", "bytes", "seconds"), rows)
        rows = [(batch, f"{seconds:.9f}") for batch, seconds in zip(BATCHES, steps, strict=True)]
        write(options.out.with_name("compute.csv"), ("batch", "seconds"), rows)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
