"""The quiz of lab 5."""

from __future__ import annotations

import numpy as np

from paceline_course.quiz import Choice, Number, Question, asks


@asks
def local_rank(draw: np.random.Generator) -> Question:
    """Rank modulo devices."""
    devices, machines = int(draw.choice([2, 4, 8])), int(draw.integers(2, 5))
    rank = int(draw.integers(devices, devices * machines))
    return Number(
        f"{machines} machines with {devices} GPUs each, ranks in order of machines. "
        f"Which number has the GPU of rank {rank}?",
        rank % devices,
        f"machine {rank // devices}, local rank {rank % devices}: the local rank names the GPU.",
        tolerance=0.0,
    )


@asks
def padding(draw: np.random.Generator) -> Question:
    """Ceil times world."""
    world = int(draw.choice([4, 6, 8]))
    samples = world * int(draw.integers(100, 200)) + int(draw.integers(1, world))
    padded = -(-samples // world) * world
    return Number(
        f"DistributedSampler shares {samples:,} samples over {world} processes without dropping any. "
        "How many samples are counted twice?",
        padded - samples,
        f"it fills up to {padded:,}, the next multiple of {world}.",
        tolerance=0.0,
    )


@asks
def epoch(draw: np.random.Generator) -> Question:
    """set_epoch."""
    del draw
    return Choice(
        "What happens if set_epoch is forgotten?",
        "every epoch has the same order, and nothing says so",
        "The sampler shuffles by its seed and the epoch number, which stays 0.",
        {
            "all processes see the same samples": "The partition does not depend on the epoch.",
            "the loader raises an error in the second epoch": "It cannot know that another order was meant.",
            "samples are not shuffled at all": "They are, once and for all.",
        },
    )


@asks
def barrier(draw: np.random.Generator) -> Question:
    """A barrier on one process."""
    world = int(draw.integers(3, 9))
    return Choice(
        f"`if rank == 0: download(); dist.barrier()` on one line, {world} processes. What happens?",
        "rank 0 waits for ever, while the others go on",
        "The barrier is inside the if: only rank 0 calls it, and a barrier ends when all have.",
        {
            "all wait until the download is done": "They would with the barrier outside the if.",
            "the others wait for rank 0": "They never reach a barrier.",
            "nothing special: a barrier on one process ends at once": "It waits for the whole group.",
        },
    )


@asks
def accuracy(draw: np.random.Generator) -> Question:
    """Sums over counts."""
    first, second = int(draw.integers(80, 120)), int(draw.integers(10, 30))
    hits, more = int(first * draw.uniform(0.85, 0.95)), int(second * draw.uniform(0.3, 0.6))
    return Number(
        f"Process 0 has {hits} of {first} right, process 1 has {more} of {second}. "
        "What is the accuracy over all, in percent?",
        100 * (hits + more) / (first + second),
        f"({hits} + {more}) / ({first} + {second}); the mean of the two accuracies would be "
        f"{50 * (hits / first + more / second):.1f} %.",
        tolerance=0.002,
        unit="%",
    )
