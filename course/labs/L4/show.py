"""Pictures and experiments of lab 4. Experiments run the learner's files on ranks of their own."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
import torch.distributed as dist
from matplotlib.axes import Axes
from torch import nn

from paceline.observe.probes.group_collectives import GroupCollectives
from paceline.observe.session import Session
from paceline.observe.sinks import MemorySink
from paceline.pool.warm_ranks import run_ranks
from paceline.records.observed import Collective, CollectiveDone
from paceline_course.answer_process import load_file

WORK = Path("work")
_RANK_COLOURS = ("#2b6cb0", "#c05621")


def loop() -> None:
    """A training step on two ranks, drawn."""
    figure, axis = plt.subplots(figsize=(9, 2.6), layout="constrained")
    del figure
    stages = (
        "own part\nof the batch",
        "forward",
        "backward",
        "mean of\ngradients",
        "optimizer\nstep",
        "equal\nweights",
    )
    for rank in (0, 1):
        for number, stage in enumerate(stages):
            shared = number == 3
            if shared and rank == 1:
                continue
            y, height = (0.05, 1.65) if shared else (0.95 - 0.9 * rank, 0.75)
            colour = "#718096" if shared else _RANK_COLOURS[rank]
            axis.add_patch(plt.Rectangle((number, y), 0.82, height, facecolor=colour, alpha=0.9))
            axis.text(number + 0.41, y + height / 2, stage, ha="center", va="center", color="white", fontsize=9)
        axis.text(-0.1, 1.33 - 0.9 * rank, f"rank {rank}", ha="right", va="center")
    axis.set(xlim=(-0.7, 6), ylim=(0, 1.8))
    axis.axis("off")
    plt.show()


def summed_step(ranks: int) -> float:
    """How many times as long the first step of SGD is where gradients are summed, measured on real ranks."""
    return float(run_ranks(_summed_over_averaged, ranks)[0])


def _summed_over_averaged() -> float:
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    torch.manual_seed(1 + dist.get_rank())
    model(torch.randn(16, 8)).square().mean().backward()
    gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    dist.all_reduce(gradient)
    return float(gradient.norm() / (gradient / dist.get_world_size()).norm())


def buckets_of(layers: int, fit: int) -> int:
    """All-reduces of one step of the learner's Buckets, of which each may hold `fit` of `layers` equal gradients."""
    size = 512 * 512 * 4
    traced = run_ranks(_traced_step, 2, str(WORK / "L4_3.py"), "buckets", layers, fit * size + 100)
    return sum(call[0] == "all_reduce" for call in traced[0].calls)


@dataclass(frozen=True)
class Step:
    """One step of one rank, in seconds since backward began.

    Attributes:
        calls: (operation, sent, complete) of each collective.
        backward_s: when backward was over.
        all_s: when all gradients were ready.
    """

    calls: list[tuple[str, float, float]]
    backward_s: float
    all_s: float


FORMS = (("naive", "L4_1.py"), ("one flat bucket", "L4_2.py"), ("buckets, overlapped", "L4_3.py"))


def timelines(layers: int = 24, fit: int = 6) -> None:
    """The learner's three forms, traced on two ranks: when each collective was sent, and when it was complete."""
    if GroupCollectives.missing():
        print("this torch does not tell of its collectives (2.14 does), so there is no picture")
        return
    _, axes = plt.subplots(len(FORMS), 1, figsize=(9, 4.6), sharex=True, layout="constrained")
    for axis, (name, file) in zip(axes, FORMS, strict=True):
        kind = "buckets" if file == "L4_3.py" else "after"
        try:
            steps = run_ranks(_traced_step, 2, str(WORK / file), kind, layers, fit * 512 * 512 * 4 + 100)
        except Exception as error:  # noqa: BLE001  an exercise that is not solved yet
            axis.text(0.01, 0.5, f"{file}: {str(error).splitlines()[0]}", transform=axis.transAxes)
            continue
        _draw(axis, name, steps)
    axes[-1].set_xlabel("milliseconds since backward began")
    plt.show()


def _draw(axis: Axes, name: str, steps: list[Step]) -> None:
    for rank, step in enumerate(steps):
        axis.barh(rank, step.backward_s * 1e3, height=0.95, color="0.88", zorder=0)  # behind the bars of both ranks
        for _, sent, complete in step.calls:
            axis.barh(rank, (complete - sent) * 1e3, left=sent * 1e3, height=0.7, color=_RANK_COLOURS[rank])
        axis.axvline(step.all_s * 1e3, color=_RANK_COLOURS[rank], linewidth=1)
    axis.set_yticks([0, 1], ["rank 0", "rank 1"])
    late = max(step.all_s for step in steps) * 1e3
    axis.set_title(f"{name}: all gradients ready after {late:.1f} ms", fontsize=10, loc="left")


def _traced_step(path: str, kind: str, layers: int, bucket_bytes: int) -> Step:
    """Two steps on a rank, the second one traced."""
    module = load_file(path)
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(512, 512, bias=False) for _ in range(layers)))
    buckets: Any = module.Buckets(model, bucket_bytes) if kind == "buckets" else None
    batch = torch.randn(256, 512)
    for traced in (False, True):
        model.zero_grad()
        loss = model(batch).square().mean()
        dist.barrier()
        sink = MemorySink()
        session = Session(sink, [GroupCollectives()])
        if traced:
            session.arm()
        began = time.monotonic()
        loss.backward()
        backward_s = time.monotonic() - began
        if buckets is None:
            module.average_gradients(model)
        else:
            buckets.finish()
        all_s = time.monotonic() - began
        time.sleep(0.02)  # a thread of the backend reports the last completions
        session.disarm()
    done_s = {each.seq: each.done_s for each in sink.of(CollectiveDone)}
    calls = [
        (call.op, call.issued_s - began, done_s.get(call.seq, began + all_s) - began) for call in sink.of(Collective)
    ]
    return Step(calls, backward_s, all_s)
