"""Pictures and experiments of lab 3."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import torch
import torch.distributed as dist

from paceline.observe.probes.group_collectives import GroupCollectives
from paceline.observe.session import Session
from paceline.observe.sinks import MemorySink
from paceline.pool.warm_ranks import run_ranks
from paceline.records.observed import Collective
from paceline_course.answer_process import load_file
from paceline_course.checking import load_module

_ring = load_module(Path(__file__).with_name("ring.py"), "paceline_course_L3_ring")

WORK = Path("work")
_COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1")


def patterns() -> None:
    """What four ranks hold before and after each collective."""
    kinds = {
        "broadcast": (["A", "", "", ""], ["A", "A", "A", "A"]),
        "all-reduce": (["A", "B", "C", "D"], ["A+B+C+D"] * 4),
        "reduce-scatter": (["A1..A4", "B1..B4", "C1..C4", "D1..D4"], [f"sum of {n}" for n in (1, 2, 3, 4)]),
        "all-gather": (["A", "B", "C", "D"], ["A B C D"] * 4),
    }
    _, axes = plt.subplots(1, 4, figsize=(11, 2.6), layout="constrained")
    for axis, (name, (before, after)) in zip(axes, kinds.items(), strict=True):
        for column, held in enumerate((before, after)):
            for rank, text in enumerate(held):
                axis.add_patch(plt.Rectangle((column * 1.5, -rank), 1.2, 0.8, facecolor=_COLOURS[rank], alpha=0.85))
                axis.text(column * 1.5 + 0.6, -rank + 0.4, text, color="white", ha="center", va="center", fontsize=8)
        axis.annotate("", (1.5, -1.1), (1.2, -1.1), arrowprops={"arrowstyle": "->"})
        axis.set(xlim=(-0.1, 2.8), ylim=(-3.2, 1.0), title=name)
        axis.axis("off")
    plt.show()


def ring(world: int) -> None:
    """The reduce-scatter of a ring, step by step: what each rank holds of each chunk."""
    _ring.pictures(world)


def ring_in_motion(world: int) -> object:
    """The whole all-reduce, as a film."""
    return _ring.film(world)


def bytes_by_world(length: int = 100_000) -> None:
    """What the busiest rank sends, measured: everything through rank 0, and the learner's ring."""
    if GroupCollectives.missing():
        print("this torch does not tell of what is sent (2.14 does), so there is no picture")
        return
    worlds = [2, 3, 4]
    size = length * 4
    sent = [run_ranks(_sent, world, str(WORK / "L3_4.py"), length) for world in worlds]
    through, mine = ([max(rank[way] for rank in ranks) / size for ranks in sent] for way in (0, 1))
    _, axis = plt.subplots(figsize=(5.4, 3.4), layout="constrained")
    axis.plot(worlds, through, "o-", color=_COLOURS[1], label="through rank 0")
    axis.plot(worlds, mine, "o-", color=_COLOURS[0], label="your ring")
    axis.plot(worlds, [2 * (world - 1) / world for world in worlds], "--", color="grey", label="2 (W − 1) / W")
    axis.set(xlabel="ranks", ylabel="tensors that the busiest rank sends", xticks=worlds)
    axis.legend(frameon=False)
    plt.show()


def _sent(path: str, length: int) -> tuple[int, int]:
    """Bytes that this rank sends for one all-reduce: through rank 0, and by the learner's ring."""
    ways = (_through_rank_0, load_file(path).all_reduce)
    found = []
    for way in ways:
        sink = MemorySink()
        with Session(sink, [GroupCollectives()]):
            way(torch.ones(length))
        found.append(sum(call.bytes for call in sink.of(Collective) if call.op == "send"))
    return found[0], found[1]


def _through_rank_0(tensor: torch.Tensor) -> None:
    world = dist.get_world_size()
    if dist.get_rank():
        dist.send(tensor, 0)
        dist.recv(tensor, 0)
        return
    received = torch.empty_like(tensor)
    for other in range(1, world):
        dist.recv(received, other)
        tensor += received
    for other in range(1, world):
        dist.send(tensor, other)
