"""Deck D5: drawings of DDP, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paceline_course.checking import load_module
from paceline_course.slides.pictures import BLUE, GREEN, GREY, ORANGE, RED, VIOLET, Canvas
from paceline_course.slides.registry import figure

_base = load_module(Path(__file__).with_name("parallel.py"), "paceline_course_slides_parallel")
Board = _base.Board
RANKS = _base.RANKS


@figure("ddp-replicas")
def ddp_replicas(canvas: Canvas) -> str:
    """What each of three processes has of its own, and what is equal."""
    board = Board.square(canvas)
    for rank in range(3):
        x = 0.15 + 2.05 * rank
        board.words((x + 0.9, 4.75), f"rank {rank}", size=15, bold=True, colour=RANKS[rank])
        board.box((x, 3.75, 1.8, 0.65), "own samples", colour=RANKS[rank], size=12.5)
        board.arrow((x + 0.9, 3.7), (x + 0.9, 3.3))
        board.box((x, 2.6, 1.8, 0.65), "own gradient", colour=RANKS[rank], size=12.5)
        board.arrow((x + 0.9, 2.55), (x + 0.9, 2.1), step=1)
        board.arrow((x + 0.9, 1.45), (x + 0.9, 1.0), step=2)
        board.box((x, 0.3, 1.8, 0.65), "same weights", colour=GREEN, step=2, size=12.5)
    board.box((0.15, 1.5, 5.9, 0.55), "mean of the gradients, the same for all", colour=GREEN, step=1, fill=0.35)
    return "Three processes: own samples and own gradients; their mean is the same for all, and so are the new weights"


@figure("ddp-places")
def ddp_places(canvas: Canvas) -> str:
    """Two nodes with two devices each."""
    board = Board.wide(canvas)
    for node in range(2):
        left = 0.3 + 5.5 * node
        board.box((left, 0.55, 5.1, 3.0), "", colour=GREY, fill=0.05)
        board.words((left + 0.15, 3.28), f"node {node}", ha="left", size=15, bold=True)
        for local in range(2):
            x = left + 0.2 + 2.45 * local
            rank = 2 * node + local
            colour = (BLUE, ORANGE, VIOLET, GREEN)[rank]
            board.box((x, 0.75, 2.25, 2.25), "", colour=colour)
            board.words((x + 1.12, 2.6), "process", size=13)
            board.words((x + 1.12, 2.15), f"rank {rank}", size=17, step=1, bold=True)
            board.words((x + 1.12, 1.7), f"local rank {local}", size=14, step=2)
            board.words((x + 1.12, 1.15), f"cuda:{local}", size=14, step=3)
    board.words((5.6, 0.2), "world size 4", size=15, bold=True, step=1)
    return (
        "Two nodes with two processes each. Ranks 0 and 1 on node 0, ranks 2 and 3 on node 1; local ranks 0 and 1 on "
        "each node; each process has the device of its local rank"
    )


@figure("ddp-barrier")
def ddp_barrier(canvas: Canvas) -> str:
    """Who downloads and who waits, on two nodes."""
    board = Board.square(canvas)
    barrier = 3.75
    for rank in range(4):
        node, local = divmod(rank, 2)
        y = 3.75 - 0.85 * rank - 0.35 * node
        board.words((0.0, y + 0.25), f"node {node}\nlocal {local}", ha="left", size=12)
        if local == 0:
            board.box((0.95, y, 2.1 + 0.6 * node, 0.5), "download", colour=BLUE, size=13)
        else:
            board.box((0.95, y, 0.2, 0.5), "", colour=GREY)
            board.words((1.3, y + 0.25), "waits", ha="left", size=13, step=1)
        board.box((barrier + 0.15, y, 1.9, 0.5), "reads", colour=GREEN, size=13, step=2)
    board.line((barrier, 0.35), (barrier, 4.55), colour=RED, width=3, step=1)
    board.words((barrier, 4.75), "barrier", size=14, bold=True, step=1, colour=RED)
    return "Time runs to the right: local rank 0 of each node downloads, the others wait at the barrier, then all read"


@figure("ddp-same-start")
def ddp_same_start(canvas: Canvas) -> str:
    """Rank 0's weights and buffers go to all."""
    board = Board.square(canvas)
    for rank in range(3):
        y = 3.7 - 1.5 * rank
        board.words((0.0, y + 0.4), f"rank {rank}", ha="left", size=14, bold=True, colour=RANKS[rank])
        board.box((1.0, y, 1.5, 0.8), "own random\nweights", colour=RANKS[rank], size=12)
        board.box((4.4, y, 1.7, 0.8), "weights\nof rank 0", colour=RANKS[0], size=12, step=1)
        if rank:
            board.arrow((2.55, 4.1), (4.35, y + 0.4), colour=RANKS[0], step=1)
        else:
            board.arrow((2.55, 4.1), (4.35, 4.1), colour=RANKS[0], step=1)
    return "Before wrapping each rank has weights of its own; the constructor sends those of rank 0 to all"


@figure("ddp-overlap")
def ddp_overlap(canvas: Canvas) -> str:
    """Backward of four layers, with one exchange at the end and with two buckets on the way."""
    board = Board.wide(canvas)
    left, unit, height = 2.0, 1.05, 0.5
    layers = (BLUE, BLUE, ORANGE, ORANGE)
    for top, buckets in ((3.0, False), (1.05, True)):
        step = 1 if buckets else 0
        title = "buckets, sent on the way" if buckets else "all at the end"
        board.words((left - 1.95, top + 0.72), title, ha="left", size=14, bold=True, step=step)
        for row, name in enumerate(("computes", "exchanges")):
            board.words((0.05, top + 0.25 - row * (height + 0.08)), name, ha="left", size=13, step=step)
        for place in range(4):
            board.box((left + unit * place + 0.02, top, unit - 0.04, height), f"layer {4 - place}",
                      colour=layers[place], size=13, step=step)  # fmt: skip
        below = top - height - 0.08
        if buckets:
            board.box((left + 2 * unit + 0.02, below, 1.9 * unit - 0.04, height), "layers 4 and 3", colour=BLUE, step=2)
            board.box(
                (left + 4 * unit + 0.02, below, 1.9 * unit - 0.04, height), "layers 2 and 1", colour=ORANGE, step=3
            )
            board.box((left + 5.9 * unit + 0.02, top, unit * 0.8, height), "step", colour=GREEN, step=4)
            board.arrow((left + 6.8 * unit, 0.15), (left + 8.5 * unit, 0.15), colour=GREY, step=4, style="<|-|>")
            board.words((left + 7.65 * unit, 0.38), "saved", size=13, step=4)
        else:
            board.box((left + 4 * unit + 0.02, below, 3.6 * unit - 0.04, height), "layers 4, 3, 2, 1", colour=GREY)
            board.box((left + 7.6 * unit + 0.02, top, unit * 0.8, height), "step", colour=GREEN)
    return (
        "Backward goes from layer 4 to layer 1. Above, one exchange after it; below, the bucket of layers 4 and 3 is "
        "exchanged while layers 2 and 1 are computed, so that the step comes earlier"
    )


# D5: samples


@figure("ddp-indices")
def ddp_indices(canvas: Canvas) -> str:
    """Ten samples, three ranks: shuffle, fill up, deal out; two epochs, as torch's own sampler does it."""
    import torch
    from torch.utils.data.distributed import DistributedSampler

    board = Board.wide(canvas)
    samples, world, width = 10, 3, 0.5
    for epoch in range(2):
        top = 2.95 - 2.1 * epoch
        order = torch.randperm(samples, generator=torch.Generator().manual_seed(epoch)).tolist()
        parts = []
        for rank in range(world):
            sampler: DistributedSampler[Any] = DistributedSampler(range(samples), world, rank, seed=0)  # type: ignore[arg-type]
            sampler.set_epoch(epoch)
            parts.append(list(sampler))
        filled = order + order[: -samples % world]
        if parts != [filled[rank::world] for rank in range(world)]:
            raise ValueError("the sampler of this torch deals out in another way")
        step = 3 * epoch
        board.words((0.0, top + 0.25), f"epoch {epoch}", ha="left", size=14, bold=True, step=step)
        for place, index in enumerate(filled):
            padding = place >= samples
            board.box((1.05 + width * place + 0.02, top, width - 0.04, 0.5), str(index), colour=RANKS[place % world],
                      size=15, dashed=padding, step=step + padding, fill=0.0 if padding else 0.22)  # fmt: skip
        if not epoch:
            board.words((1.05 + width * 11, top + 0.62), "filled up", size=12.5, step=1, va="bottom")
            board.words((1.05 + width * 5, top + 0.62), "shuffled by seed and epoch", size=12.5, va="bottom")
        for rank, part in enumerate(parts):
            y = top + 0.55 - 0.55 * rank
            board.words(
                (7.6, y + 0.2), f"rank {rank}", ha="left", size=13, bold=True, colour=RANKS[rank], step=step + 2
            )
            for place, index in enumerate(part):
                twice = place * world + rank >= samples
                board.box((8.5 + width * place + 0.02, y, width - 0.04, 0.45), str(index), colour=RANKS[rank], size=14,
                          dashed=twice, fill=0.0 if twice else 0.22, step=step + 2)  # fmt: skip
        board.words((10.65, top + 0.2), "4 each", ha="left", size=12.5, step=step + 2)
    return (
        "Ten indices in a random order, filled up to twelve with the first two, and dealt out to three ranks in turn; "
        "another order in the second epoch"
    )


@figure("ddp-batches")
def ddp_batches(canvas: Canvas) -> str:
    """Two ways to go from one process to four."""
    board = Board.wide(canvas)
    board.words((1.2, 3.6), "one process", size=15, bold=True)
    board.box((0.2, 2.1, 2.0, 0.95), "64", colour=BLUE, size=20)
    board.words((1.2, 1.75), "64 in all", size=14, va="top")
    for left, each, width, name, said in (
        (3.1, 16, 0.6, "global batch kept", "64 in all: the same training,\nless work a rank"),
        (6.5, 64, 1.05, "batch of a rank kept", "256 in all: another training,\nas much work a rank"),
    ):
        step = 1 if each == 16 else 2
        board.words((left + 2 * width + 0.1, 3.6), name, size=15, bold=True, step=step)
        for rank in range(4):
            board.box((left + (width + 0.08) * rank, 2.1, width, 0.95), str(each), size=20, step=step,
                      colour=(BLUE, ORANGE, VIOLET, GREEN)[rank])  # fmt: skip
        board.words((left + 2 * width + 0.1, 1.75), said, size=14, step=step, va="top")
    return (
        "A batch of 64 on one process becomes four of 16, the same global batch, or four of 64, a global batch of 256"
    )


@figure("ddp-means")
def ddp_means(canvas: Canvas) -> str:
    """Ten samples on three ranks: the mean of means is not the accuracy."""
    board = Board.square(canvas)
    counted, right = (4, 3, 3), (4, 2, 1)
    for rank in range(3):
        y = 4.1 - 0.8 * rank
        board.words((0.0, y + 0.25), f"rank {rank}", ha="left", size=14, bold=True, colour=RANKS[rank])
        for place in range(counted[rank]):
            good = place < right[rank]
            board.box((1.0 + 0.55 * place, y, 0.5, 0.5), "✓" if good else "✗", colour=GREEN if good else RED, size=14)
        board.words((3.45, y + 0.25), f"{right[rank]} of {counted[rank]}", ha="left", size=14)
        board.words((4.85, y + 0.25), f"{right[rank] / counted[rank]:.3f}", ha="left", size=14)
    mean = sum(r / c for r, c in zip(right, counted, strict=True)) / 3
    board.line((0.0, 2.3), (6.1, 2.3))
    board.words((0.0, 1.75), "mean of means", ha="left", size=14, step=1)
    board.words((4.85, 1.75), f"{mean:.3f}", ha="left", size=16, step=1, bold=True, colour=RED)
    board.words((0.0, 1.0), f"sums, divided once:  {sum(right)} of {sum(counted)}", ha="left", size=14, step=2)
    board.words((4.85, 1.0), f"{sum(right) / sum(counted):.3f}", ha="left", size=16, step=2, bold=True, colour=GREEN)
    return "Ranks have 4 of 4, 2 of 3 and 1 of 3 right: the mean of their accuracies is 0.667, the accuracy is 0.700"
