"""The quiz of lab 10."""

from __future__ import annotations

import numpy as np

from paceline_course.quiz import Choice, Number, Question, asks


@asks
def adam(draw: np.random.Generator) -> Question:
    """Two numbers for each weight."""
    millions, world = int(draw.integers(100, 900)), int(draw.choice([4, 8, 16]))
    return Number(
        f"Adam keeps two float32 numbers for each of {millions} million weights. "
        f"How many MB of that has a process if the optimizer is sharded over {world}?",
        8 * millions / world,
        f"8 bytes x {millions} million / {world}.",
        unit="MB",
    )


@asks
def lost(draw: np.random.Generator) -> Question:
    """Work since the last checkpoint."""
    every, step_s = int(draw.integers(200, 800)), round(float(draw.uniform(0.2, 0.9)), 1)
    return Number(
        f"A checkpoint every {every} steps, {step_s} s a step. How many seconds of work does a kill cost on average?",
        every * step_s / 2,
        "half of what lies between two checkpoints.",
        unit="s",
    )


@asks
def scale(draw: np.random.Generator) -> Question:
    """Dynamic loss scaling."""
    start, interval = int(draw.choice([1024, 4096])), int(draw.choice([100, 200]))
    return Number(
        f"A loss scale of {start}, doubled after {interval} good steps in a row. "
        f"There are {2 * interval} good steps, one overflow, and {interval} good steps. What is the scale?",
        start * 4,
        f"doubled twice, halved once, doubled once: {start} x 4.",
        tolerance=0.0,
    )


@asks
def elastic(draw: np.random.Generator) -> Question:
    """What has to stay."""
    before, after = 8, int(draw.choice([4, 6, 16]))
    return Choice(
        f"A job comes back with {after} processes instead of {before}. "
        "For the same training, what has to stay the same?",
        "the global batch, and which samples each step has",
        "Then gradients are the same, but for the order of sums.",
        {
            "the batch of each process": "Then the global batch changes, and with it the right learning rate.",
            "the number of steps an epoch of each process": "It follows from the global batch.",
            "the samples of each process": "There are other processes; only the batch as a whole counts.",
        },
    )


@asks
def replace(draw: np.random.Generator) -> Question:
    """Atomic files."""
    del draw
    return Choice(
        "Why is a checkpoint written under another name and renamed?",
        "a rename happens as a whole or not at all, so that a reader never finds half a file",
        "The last complete file stays until the new one is complete.",
        {
            "it is faster": "It is a little slower.",
            "two processes may then write at once": "They would still write the same new name.",
            "so that old checkpoints are kept": "The rename replaces the old one.",
        },
    )
