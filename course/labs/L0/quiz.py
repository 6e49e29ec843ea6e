"""The quiz of lab 0."""

from __future__ import annotations

import numpy as np

from paceline_course.quiz import Choice, Number, Question, asks


@asks
def world(draw: np.random.Generator) -> Question:
    """Machines times devices."""
    machines, devices = int(draw.integers(2, 9)), int(draw.choice([2, 4, 8]))
    return Number(
        f"{machines} machines with {devices} GPUs each, one process a GPU: how many processes are there?",
        machines * devices,
        f"{machines} x {devices}; this number is called the world size.",
        tolerance=0.0,
    )


@asks
def share(draw: np.random.Generator) -> Question:
    """The batch of one process."""
    processes = int(draw.choice([2, 4, 8]))
    batch = processes * int(draw.choice([16, 32, 64]))
    return Number(
        f"A global batch of {batch} samples over {processes} processes: how many samples has each in a step?",
        batch // processes,
        f"{batch} / {processes}.",
        tolerance=0.0,
    )


@asks
def file(draw: np.random.Generator) -> Question:
    """Which file counts."""
    del draw
    return Choice(
        "You change an exercise in an editor and then run its cell in the notebook. What happens?",
        "the file stays as you edited it, and the cell says so",
        "The file is your answer; a cell overwrites only what a notebook wrote.",
        {
            "the cell overwrites the file": "Only where nobody else has changed it since.",
            "there are two answers, and the better one counts": "There is one file, and that is what is checked.",
            "the check looks at the notebook": "It runs the file in processes of its own.",
        },
    )


@asks
def latency(draw: np.random.Generator) -> Question:
    """Fixed costs add up."""
    messages, latency_us = int(draw.integers(50, 200)), int(draw.integers(20, 80))
    return Number(
        f"A step sends {messages} messages one after the other, each with a latency of {latency_us} microseconds. "
        "How many milliseconds is that, whatever is in them?",
        messages * latency_us / 1000,
        f"{messages} x {latency_us} microseconds.",
        unit="ms",
    )


@asks
def data_parallel(draw: np.random.Generator) -> Question:
    """What is copied and what is shared out."""
    del draw
    return Choice(
        "Data parallelism: what does each process have?",
        "a copy of the whole model, and its own part of each batch",
        "Gradients are averaged, so that all copies stay equal.",
        {
            "a part of the model, and the whole batch": "That is model parallelism.",
            "a part of the model, and a part of the batch": "Both can be combined; each alone is simpler.",
            "a copy of the model, and the whole batch": "Then all would do the same work.",
        },
    )
