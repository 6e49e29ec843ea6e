"""The quiz of lab 2."""

from __future__ import annotations

import numpy as np

from paceline_course.quiz import Choice, Number, Question, asks


@asks
def rate(draw: np.random.Generator) -> Question:
    """Samples over seconds."""
    fast, slow = int(draw.integers(20, 60)), int(draw.integers(5, 15))
    batch = int(draw.choice([32, 64, 128]))
    return Number(
        f"{fast} steps of {batch} samples take 4 s, then {slow} steps of {batch} take 6 s. "
        "How many samples a second is that?",
        batch * (fast + slow) / 10,
        f"all samples over all seconds: {batch * (fast + slow)} / 10; the mean of the two rates would be "
        f"{batch * (fast / 4 + slow / 6) / 2:.0f}.",
    )


@asks
def best_batch(draw: np.random.Generator) -> Question:
    """Samples over rate."""
    samples = {64: int(draw.integers(180, 220)), 512: int(draw.integers(380, 520))}
    rates = {64: int(draw.integers(5, 8)), 512: int(draw.integers(10, 13))}
    return Number(
        f"Batch 64 needs {samples[64]} thousand samples to the target at {rates[64]} thousand a second, "
        f"batch 512 needs {samples[512]} thousand at {rates[512]} thousand. "
        "How many seconds does the quicker one take?",
        min(samples[batch] / rates[batch] for batch in samples),
        f"{samples[64]} / {rates[64]} = {samples[64] / rates[64]:.1f} s and "
        f"{samples[512]} / {rates[512]} = {samples[512] / rates[512]:.1f} s.",
        unit="s",
    )


@asks
def exponent(draw: np.random.Generator) -> Question:
    """Steps saved."""
    steps = int(draw.integers(400, 900))
    saved = float(draw.choice([1.25, 1.5, 1.8]))
    return Number(
        f"At batch 128 it takes {steps} steps to the target, at 512 {round(steps / saved)}. "
        "By what factor do the samples grow?",
        4 * round(steps / saved) / steps,
        f"4 times the batch, {round(steps / saved)} / {steps} of the steps.",
    )


@asks
def censored(draw: np.random.Generator) -> Question:
    """What to do with runs that fail."""
    del draw
    return Choice(
        "Two of three runs at batch 4096 never reach the target within 60 epochs. What is the median number of epochs?",
        "more than 60",
        "Two of three values are larger than 60, and so is the middle one.",
        {
            "that of the third run": "This leaves out the runs that failed, and so flatters the setting.",
            "60": "They were stopped at 60; they did not get there.",
            "it does not exist": "An order needs no exact values: the middle one of three is known to be above 60.",
        },
    )


@asks
def flat(draw: np.random.Generator) -> Question:
    """Why throughput saturates."""
    del draw
    return Choice(
        "Why do samples a second hardly grow from batch 256 to 1,024?",
        "the fixed cost of a step is small already, so that time grows with the samples",
        "A larger batch shares out the fixed part; when little of it is left, nothing more is gained.",
        {
            "large batches take more steps": "An epoch has fewer of them.",
            "the network learns less from each sample": "That is so, and it does not change the samples a second.",
            "the gradient is noisier": "It is less noisy, and noise takes no time.",
        },
    )
