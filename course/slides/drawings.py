"""Drawings for decks: how collectives work and what they cost by their formulae. None of it is a measurement."""

from __future__ import annotations

import numpy as np

from paceline.plan.collectives import Link
from paceline.plan.collectives import ring as ring_s
from paceline.plan.collectives import tree as tree_s
from paceline_course.slides.pictures import BLUE, GREEN, GREY, INK, ORANGE, RED, Canvas
from paceline_course.slides.registry import figure


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


@figure("halves")
def halves(canvas: Canvas) -> str:
    """What four ranks hold before, between and after the halves of an all-reduce."""
    from matplotlib.patches import Rectangle

    axes = canvas.blank(22, 8)
    stages = (("each rank: its own part", 0.4), ("one chunk is the sum", 8.2), ("all chunks are sums", 16.0))
    for number, (name, left) in enumerate(stages):
        axes.text(left + 2.8, 7.4, name, ha="center", fontsize=15)
        for rank in range(4):
            bottom = 5.3 - 1.45 * rank
            for chunk in range(4):
                whole = number == 2 or (number == 1 and chunk == rank)
                colour = GREEN if whole else (BLUE if number == 0 else GREY)
                patch = Rectangle((left + 1.4 * chunk, bottom), 1.3, 1.2, facecolor=colour,
                                  alpha=0.8 if whole else 0.25, clip_on=False)  # fmt: skip
                axes.add_patch(patch)
                if whole:
                    axes.text(left + 1.4 * chunk + 0.65, bottom + 0.6, "Σ", ha="center", va="center", fontsize=15)
    for left, word, step in ((6.1, "reduce-\nscatter", 1), (13.9, "all-\ngather", 2)):
        arrow = axes.annotate("", (left + 2.0, 3.5), (left, 3.5),
                              arrowprops={"arrowstyle": "-|>", "color": ORANGE, "linewidth": 3})  # fmt: skip
        canvas.step(arrow, step)
        axes.text(left + 0.95, 4.0, word, ha="center", va="bottom", fontsize=14)
    axes.text(0.25, 0.2, "a row: a rank; a column: a chunk", fontsize=13)
    return "After the reduce-scatter each rank has the sum of one chunk; after the all-gather every rank has all sums"


@figure("tree-and-ring")
def tree_and_ring(canvas: Canvas) -> str:
    """Who sends to whom: eight ranks in a tree, and in a ring."""
    axes = canvas.blank(22, 8)
    for level, (width, colour) in enumerate(((1, BLUE), (2, ORANGE), (4, GREEN))):
        for rank in range(0, 8, 2 * width):
            arrow = axes.annotate("", (0.8 + 1.2 * rank, 1.2 + 1.8 * (level + 1)),
                                  (0.8 + 1.2 * (rank + width), 1.2 + 1.8 * level),
                                  arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 2.4,
                                              "shrinkA": 12, "shrinkB": 12})  # fmt: skip
            canvas.step(arrow, level + 1)
        axes.text(9.9, 2.0 + 1.8 * level, f"round {level + 1}", fontsize=14, va="center", color=colour)
    for level, step in enumerate((1, 2, 4, 8)):
        for rank in range(0, 8, step):
            axes.text(0.8 + 1.2 * rank, 1.2 + 1.8 * level, f"{rank}", ha="center", va="center", fontsize=15)
    axes.text(5.0, 0.3, "tree: whole tensors; up, and then down again", ha="center", fontsize=14)
    angles = np.pi / 2 - 2 * np.pi * np.arange(8) / 8
    places = np.stack([17.2 + 3.0 * np.cos(angles), 4.3 + 2.9 * np.sin(angles)], axis=1)
    for rank, (x, y) in enumerate(places):
        axes.text(x, y, f"{rank}", ha="center", va="center", fontsize=15)
        axes.annotate("", places[(rank + 1) % 8], (x, y),
                      arrowprops={"arrowstyle": "-|>", "color": BLUE, "linewidth": 2.4,
                                  "shrinkA": 13, "shrinkB": 13})  # fmt: skip
    axes.text(17.2, 0.3, "ring: an eighth each time; all links at once", ha="center", fontsize=14)
    return "In a tree eight ranks send whole tensors up in three rounds; in a ring all send an eighth to the right"


@figure("sum-order")
def sum_order(canvas: Canvas) -> str:
    """The same float32 numbers, summed in parts as so many ranks would."""
    random = np.random.default_rng(0)
    numbers = random.normal(0, 1, 2**16).astype(np.float32)
    exact = numbers.astype(np.float64).sum()
    ranks = (1, 2, 3, 4, 6, 8, 16)
    axes = canvas.axes()
    for place, world in enumerate(ranks):
        total = np.float32(0)
        for part in np.array_split(numbers, world):
            total += np.cumsum(part, dtype=np.float32)[-1]  # one after the other, as a loop would
        axes.bar(place, 1e6 * abs(float(total) - exact) / abs(exact), color=BLUE, width=0.6)
    axes.set_xticks(range(len(ranks)), [str(world) for world in ranks])
    axes.set(xlabel="ranks", ylabel="relative error, millionths")
    return "The rounding error of a sum of 65,536 numbers is another one for each number of ranks"


@figure("deadlock")
def deadlock(canvas: Canvas) -> str:
    """Two ranks over time; they call two collectives in different order."""
    axes = canvas.blank(22, 8)
    for row, (name, first, second) in enumerate((("rank 0", "all-reduce", "broadcast"),
                                                 ("rank 1", "broadcast", "all-reduce"))):  # fmt: skip
        y = 5.6 - 3.0 * row
        axes.text(0.2, y, name, fontsize=17, va="center", weight="bold")
        for left, right in ((3, 4.4), (8.2, 16.5), (20.3, 21.5)):
            axes.plot([left, right], [y, y], color=GREY, linewidth=1.5, clip_on=False)
        for left, word, colour in ((4.5, first, BLUE if first == "all-reduce" else ORANGE), (16.6, second, GREY)):
            axes.text(left + 1.8, y, word, ha="center", va="center", fontsize=15,
                      bbox={"boxstyle": "round,pad=0.5", "facecolor": "none",
                            "edgecolor": colour, "linewidth": 2.5})  # fmt: skip
        (waits,) = axes.plot([8.4, 16.0], [y + 0.9] * 2, ":", color=RED, linewidth=3, clip_on=False)
        canvas.step(waits, 1)
        axes.text(12.2, y + 1.15, "waits for the other", ha="center", va="bottom", fontsize=15)
        axes.text(18.4, y - 1.2, "never reached", ha="center", va="center", fontsize=13)
    axes.text(21.5, 0.35, "time →", ha="right", fontsize=14)
    return "Rank 0 waits in an all-reduce, rank 1 in a broadcast; neither comes to the call for which the other waits"
