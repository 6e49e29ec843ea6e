"""Drawings for decks: how collectives work and what they cost by their formulae. None of it is a measurement."""

from __future__ import annotations

import numpy as np

from paceline.learn.slides.pictures import BLUE, GREEN, GREY, INK, ORANGE, Canvas
from paceline.learn.slides.registry import figure
from paceline.plan.collectives import Link
from paceline.plan.collectives import ring as ring_s
from paceline.plan.collectives import tree as tree_s


@figure("ring")
def ring(canvas: Canvas) -> str:
    """Four ranks, and what each sends in each step of the reduce-scatter."""
    axes = canvas.blank(10, 8)
    world = 4
    angles = np.pi / 2 - 2 * np.pi * np.arange(world) / world
    places = np.stack([5 + 3.3 * np.cos(angles), 4 + 2.9 * np.sin(angles)], axis=1)
    for rank, (x, y) in enumerate(places):
        to = places[(rank + 1) % world]
        axes.annotate("", to, (x, y), arrowprops={"arrowstyle": "-|>", "color": GREY, "shrinkA": 42, "shrinkB": 42})
        axes.text(x, y, f"rank {rank}", ha="center", va="center", fontsize=14, weight="bold",
                  bbox={"boxstyle": "round,pad=0.5", "facecolor": "none", "edgecolor": INK})  # fmt: skip
    for step in range(world - 1):
        for rank in range(world):
            middle = (places[rank] + places[(rank + 1) % world]) / 2
            x, y = middle + (middle - [5, 4]) * 0.55 + [0, 0.5 - 0.5 * step]
            text = axes.text(x, y, f"step {step + 1}: chunk {(rank - step - 1) % world}", ha="center", va="center",
                             fontsize=11, color=(BLUE, ORANGE, GREEN)[step])  # fmt: skip
            canvas.step(text, step + 1)
    return "Four ranks in a ring; beside each arrow the chunk that is sent in each of three steps"


@figure("cost-of-all-reduce")
def cost_of_all_reduce(canvas: Canvas) -> str:
    """Ring and tree over the number of ranks, for a small tensor and a large one."""
    link = Link(latency_s=20e-6, bandwidth=12.5e9)
    ranks = 2 ** np.arange(1, 11)
    for axes, (size, name) in zip(canvas.axes(1, 2), ((4e3, "4 kB"), (100e6, "100 MB")), strict=True):
        axes.plot(ranks, [1e3 * ring_s(int(n), size, link) for n in ranks], "o-", color=BLUE, label="ring")
        axes.plot(ranks, [1e3 * tree_s(int(n), size, link) for n in ranks], "s-", color=ORANGE, label="tree")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set(title=f"{name}; 20 µs, 12.5 GB/s", xlabel="ranks", ylabel="ms, computed")
        axes.legend()
    return "Computed time of an all-reduce: the tree is faster for 4 kB, for 100 MB the ring up to sixteen ranks"
