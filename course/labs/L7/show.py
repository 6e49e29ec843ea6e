"""Pictures and experiments of lab 7."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from paceline.observe.probes.group_collectives import GroupCollectives
from paceline.observe.session import Session
from paceline.observe.sinks import MemorySink
from paceline.pool.warm_ranks import run_ranks
from paceline.records.observed import Collective
from paceline.tasks.models.small_cnn import SmallCNN
from paceline.tasks.shapes import draw
from paceline_course.answer_process import load_file

STAGES = (
    "read samples",
    "decode them",
    "move to the device",
    "augment, normalise",
    "queue the batch",
    "forward: first layers",
    "forward: last layers",
    "loss",
    "backward",
    "average gradients",
    "clip",
    "update weights",
    "schedule the rate",
    "log",
    "next step",
)
_COLOURS = ("#2b6cb0", "#c05621", "#2f855a")


def stages() -> None:
    """The numbered stages of a training step, on one device and on three."""
    _, axes = plt.subplots(2, 1, figsize=(11, 4.6), layout="constrained", height_ratios=(1, 2.4))
    for axis, devices in zip(axes, (1, 3), strict=True):
        for number, name in enumerate(STAGES):
            if number == 9 and devices == 1:
                continue
            for device in range(devices):
                shared = number == 9
                if shared and device:
                    continue
                low, height = (-devices + 1 + 0.06, devices - 0.12) if shared else (-device + 0.06, 0.88)
                colour = "#718096" if shared else _COLOURS[device]
                axis.add_patch(plt.Rectangle((number, low), 0.94, height, facecolor=colour, alpha=0.9))
                if device == 0:
                    label = f"{number + 1}\n{name}".replace(": ", ":\n").replace(" ", "\n", 1)
                    axis.text(
                        number + 0.47, low + height / 2, label, ha="center", va="center", fontsize=6.5, color="white"
                    )
        axis.set(xlim=(-0.2, 15), ylim=(-devices + 1, 1.05))
        axis.set_title(f"{devices} device{'s' if devices > 1 else ''}", fontsize=10, loc="left")
        axis.axis("off")
    plt.show()


def rates(workers: Sequence[int], per_worker: int = 64) -> dict[int, float]:
    """Samples a second of all workers together, with a fixed batch of each: weak scaling, interleaved, medians."""
    found: dict[int, list[float]] = {count: [] for count in workers}
    for _ in range(3):
        for count in workers:
            found[count].append(min(run_ranks(_rate, count, per_worker)) * count)
    return {count: float(np.median(values)) for count, values in found.items()}


def _rate(batch: int, steps: int = 40) -> float:
    torch.manual_seed(0)
    ddp = DistributedDataParallel(SmallCNN())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    images, labels = map(torch.from_numpy, draw(batch, seed=dist.get_rank()))
    began = 0.0
    for step in range(steps + 5):
        if step == 5:
            dist.barrier()
            began = time.monotonic()
        optimizer.zero_grad()
        F.cross_entropy(ddp(images), labels).backward()
        optimizer.step()
    return steps * batch / (time.monotonic() - began)


def messages() -> tuple[np.ndarray, np.ndarray]:
    """Sizes in bytes and times of all-reduces between two processes, medians."""
    sizes = np.unique(np.geomspace(1e3, 16e6, 15).astype(int) // 4 * 4)
    return sizes.astype(float), np.array(run_ranks(_times, 2, sizes.tolist())[0])


def _times(sizes: Sequence[int]) -> list[float]:
    medians = []
    for size in sizes:
        tensor = torch.ones(size // 4)
        taken = []
        for _ in range(12):
            dist.barrier()
            began = time.monotonic()
            dist.all_reduce(tensor)
            taken.append(time.monotonic() - began)
        medians.append(float(np.median(taken[2:])))
    return medians


def line(sizes: np.ndarray, seconds: np.ndarray, alpha: float, beta: float) -> None:
    """Measured times and the fit."""
    _, axis = plt.subplots(figsize=(5.4, 3.4), layout="constrained")
    axis.loglog(sizes, seconds * 1e3, "o", label="measured")
    axis.loglog(sizes, (alpha + beta * sizes) * 1e3, "-", label="fit")
    axis.set(xlabel="bytes", ylabel="milliseconds")
    axis.legend(frameon=False)
    plt.show()


def strong_scaling(step_time: Callable[..., float], **network: float) -> None:
    """Time of a step and its two parts over the number of workers."""
    workers = 2 ** np.arange(13)
    times = [step_time(int(count), **network) for count in workers]
    _, axis = plt.subplots(figsize=(5.8, 3.6), layout="constrained")
    axis.loglog(workers, times, "o-", base=2, label="step")
    axis.loglog(workers, network["compute_s"] / workers, "--", base=2, color="grey", label="computing alone")
    best = int(workers[int(np.argmin(times))])
    axis.axvline(best, color="#c05621", linewidth=1, label=f"shortest at {best}")
    axis.set(xlabel="workers", ylabel="seconds")
    axis.legend(frameon=False)
    plt.show()


def bucket_sizes(finish_time: Callable[..., float]) -> None:
    """When the last bucket is done, over the size of buckets, for a fast and a slow link."""
    layers, layer_s, layer_bytes = 64, 1e-3, 2e6
    sizes = [1, 2, 4, 8, 16, 32, 64]
    _, axis = plt.subplots(figsize=(5.8, 3.6), layout="constrained")
    for name, alpha, beta in (("fast link", 5e-5, 2e-10), ("slow link", 2e-4, 2e-9), ("late link", 3e-3, 2e-10)):
        done = [finish_time(layers, layer_s, layer_bytes, size, alpha, beta) * 1e3 for size in sizes]
        axis.semilogx(sizes, done, "o-", base=2, label=f"{name}: {alpha * 1e6:.0f} us, {1 / beta / 1e9:.1f} GB/s")
    axis.axhline(layers * layer_s * 1e3, color="grey", linestyle="--", label="backward alone")
    axis.set(xlabel="layers in a bucket", ylabel="milliseconds until the last is done")
    axis.set_xticks(sizes, [str(size) for size in sizes])
    axis.legend(frameon=False, fontsize=8)
    plt.show()


def arrivals_of_a_slow_rank(steps: int = 30) -> list[list[float]]:
    """When each of three processes came to the all-reduce of each step; rank 2 does some more work before."""
    by_rank = run_ranks(_arrivals, 3, steps)
    return [list(step) for step in zip(*by_rank, strict=True)]


def _arrivals(steps: int) -> list[float]:
    value = torch.ones(1)
    came = []
    for _ in range(steps):
        time.sleep(0.012 if dist.get_rank() == 2 else 0.004)
        came.append(time.monotonic())
        dist.all_reduce(value)
    return came


def exchanged(split_step: Callable[..., None]) -> None:
    """One network, as two replicas and as two parts: what is sent in a step, counted, for two batches."""
    if GroupCollectives.missing():
        print("this torch does not tell of what is sent (2.14 does), so there is no table")
        return
    print(f"{'batch':>6}  {'data parallel: gradients':>26}  {'model parallel: activations':>28}")
    for batch in (64, 1024):
        replicas = run_ranks(_replica_bytes, 2, batch)[0]
        parts = sum(run_ranks(_part_bytes, 2, split_step.__code__.co_filename, batch))
        print(f"{batch:>6}  {replicas:>20,} bytes  {parts:>22,} bytes")


def _network() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 256), nn.Tanh()), nn.Linear(256, 10)


def _replica_bytes(batch: int) -> int:
    ddp = DistributedDataParallel(nn.Sequential(*_network()))
    inputs, labels = torch.randn(batch // 2, 64), torch.randint(10, (batch // 2,))
    sink = MemorySink()
    F.cross_entropy(ddp(inputs), labels).backward()
    with Session(sink, [GroupCollectives()]):
        F.cross_entropy(ddp(inputs), labels).backward()
    return sum(call.bytes for call in sink.of(Collective) if call.by_backward)


def _part_bytes(path: str, batch: int) -> int:
    module = load_file(path)
    stage = _network()[dist.get_rank()]
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
    inputs, labels = torch.randn(batch, 64), torch.randint(10, (batch,))
    sink = MemorySink()
    with Session(sink, [GroupCollectives()]):
        module.split_step(stage, optimizer, inputs, labels)
    return sum(call.bytes for call in sink.of(Collective) if call.op == "send")
