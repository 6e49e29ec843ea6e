"""The quiz of lab 6."""

from __future__ import annotations

import numpy as np

from paceline_course.quiz import Choice, Number, Question, asks


@asks
def epochs(draw: np.random.Generator) -> Question:
    """No sampler."""
    world, count = int(draw.integers(3, 9)), int(draw.integers(4, 12))
    return Number(
        f"A program without a sampler runs for {count} epochs on {world} processes. How often is each sample seen?",
        world * count,
        f"each of {world} processes goes through all samples in each epoch.",
        tolerance=0.0,
    )


@asks
def summed(draw: np.random.Generator) -> Question:
    """Sum of a process's batch."""
    batch, world = int(draw.choice([64, 96, 128])), int(draw.choice([2, 4, 8]))
    return Number(
        f"Global batch {batch}, {world} processes, reduction='sum', DDP. "
        "How many times as long as the mean's is the gradient?",
        batch // world,
        f"a sum over {batch // world} samples of a process, averaged over processes.",
        tolerance=0.0,
    )


@asks
def agree(draw: np.random.Generator) -> Question:
    """Equality of ranks is not enough."""
    del draw
    return Choice(
        "All processes hold the same weights after every step. Which fault is possible nevertheless?",
        "gradients that are clipped before they are averaged",
        "All do the same wrong thing; only a comparison with one process shows it.",
        {
            "a forward that goes past the wrapper": "Then gradients are not averaged, and the weights differ.",
            "different weights at the beginning that stay different": "They would differ after every step.",
            "a rank-0-only optimizer step": "Then the other processes keep their old weights.",
        },
    )


@asks
def hang(draw: np.random.Generator) -> Question:
    """Reading a card."""
    world, late = 4, int(draw.integers(1, 4))
    return Choice(
        f"{world} processes hang. Three wait in their 212th all_reduce, rank {late} has called 211 and stands in "
        "torch.save. What is likely?",
        f"rank {late} does something that the others do not, and they wait for it",
        "The one with the fewest collectives is the one that is missing.",
        {
            "the network is broken": "Then all would wait in the same collective.",
            "the others are too fast": "Processes wait for each other in every collective; nobody can be ahead.",
            f"rank {late} waits for the others": "It has not called the collective that they wait in.",
        },
    )


@asks
def noise(draw: np.random.Generator) -> Question:
    """Which seeds differ."""
    del draw
    return Choice(
        "Which random numbers have to be the same on all processes?",
        "those that shuffle the data set before it is shared out",
        "Every process cuts its part out of the same order; with different orders parts overlap.",
        {
            "those of dropout": "Each process has other samples, and should drop other units.",
            "those of augmentation": "The same noise everywhere halves its variety.",
            "all of them": "Then all processes augment and drop in the same way.",
        },
    )
