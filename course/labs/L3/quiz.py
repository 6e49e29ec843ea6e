"""The quiz of lab 3."""

from __future__ import annotations

import math

import numpy as np

from paceline_course.quiz import Choice, Number, Question, asks


@asks
def rounds(draw: np.random.Generator) -> Question:
    """log2."""
    world = int(draw.integers(20, 2000))
    return Number(
        f"A tree broadcast to {world:,} ranks: how many rounds at least?",
        math.ceil(math.log2(world)),
        f"after k rounds 2^k ranks have it; 2^{math.ceil(math.log2(world))} is the first that is not below {world:,}.",
        tolerance=0.0,
    )


@asks
def ring_bytes(draw: np.random.Generator) -> Question:
    """2 (W - 1) / W."""
    world, megabytes = int(draw.choice([4, 8, 16, 64])), int(draw.integers(10, 500))
    return Number(
        f"A ring all-reduce of {megabytes} MB over {world} ranks: how many MB does each rank send?",
        2 * (world - 1) / world * megabytes,
        f"2 x {world - 1} / {world} x {megabytes}.",
        unit="MB",
    )


@asks
def steps(draw: np.random.Generator) -> Question:
    """2 (W - 1)."""
    world = int(draw.integers(5, 200))
    return Number(
        f"A ring all-reduce over {world} ranks: how many steps follow each other?",
        2 * (world - 1),
        f"{world - 1} of the reduce-scatter and {world - 1} of the all-gather; each has a latency.",
        tolerance=0.0,
    )


@asks
def more_ranks(draw: np.random.Generator) -> Question:
    """What grows."""
    first = int(draw.choice([8, 16, 32]))
    return Choice(
        f"From {first} to {first * 8} ranks, with the same large tensor: what happens to a ring all-reduce?",
        "each rank sends hardly more data, in about eight times as many steps",
        "The data of a rank approach twice the tensor; the number of steps grows with the ranks.",
        {
            "each rank sends about eight times as much": "So it is where one rank collects everything.",
            "nothing changes": "The steps become more, and each has a latency.",
            "each rank sends an eighth": "Its chunks are smaller, and there are as many more of them.",
        },
    )


@asks
def digits(draw: np.random.Generator) -> Question:
    """Order of sums."""
    del draw
    return Choice(
        "The same training on 4 and on 8 ranks, in float32, agrees to about seven digits. Why not to the last bit?",
        "sums of floating-point numbers depend on their order, and the ranks determine it",
        "Each chunk is added up in the order of the ring, and parts of a batch are summed before that.",
        {
            "messages are sometimes lost": "TCP and NVLink lose nothing, and the result would be wrong, not rounded.",
            "each rank rounds its weights differently": "All ranks hold the same bits after an all-reduce.",
            "the random numbers differ": "Then the results would differ in the first digits.",
        },
    )
