"""The quiz of lab 1."""

from __future__ import annotations

import math

import numpy as np

from paceline_course.quiz import Choice, Number, Question, asks


@asks
def steps(draw: np.random.Generator) -> Question:
    """Ceil, with a size that divides half of the time."""
    size = int(draw.choice([16, 25, 32, 50]))
    samples = size * int(draw.integers(8, 30)) + int(draw.integers(0, 2)) * int(draw.integers(1, size))
    return Number(
        f"{samples:,} samples in batches of {size}, none dropped: how many steps has an epoch?",
        math.ceil(samples / size),
        f"{samples} / {size} = {samples / size:.2f}, and a part of a batch is a step, too.",
        tolerance=0.0,
    )


@asks
def variance(draw: np.random.Generator) -> Question:
    """1 / size."""
    small = int(draw.choice([8, 16, 32]))
    factor = int(draw.choice([4, 9, 16]))
    base = round(float(draw.uniform(0.5, 3.0)), 2)
    return Number(
        f"At batches of {small} the gradient has the variance {base}. What is it at batches of {small * factor}?",
        base / factor,
        f"the variance falls as 1 / size, so it is {base} / {factor}.",
    )


@asks
def mean_of_means(draw: np.random.Generator) -> Question:
    """Unequal parts."""
    first, second = int(draw.integers(5, 9)), int(draw.integers(1, 4))
    low, high = round(float(draw.uniform(0.1, 0.4)), 2), round(float(draw.uniform(1.0, 2.0)), 2)
    return Number(
        f"One device has {first} samples with the mean loss {low}, another {second} with {high}. "
        "What is the mean loss over all samples?",
        (first * low + second * high) / (first + second),
        f"sums over counts: ({first} x {low} + {second} x {high}) / {first + second}; "
        f"the mean of the two means would be {(low + high) / 2:.4g}.",
        tolerance=0.005,
    )


@asks
def nan(draw: np.random.Generator) -> Question:
    """A comparison that is never true."""
    del draw
    return Choice(
        "A loop stops when abs(previous - loss) < 0.001. At epoch 3 the loss becomes nan. What happens?",
        "it runs to its last epoch without a word",
        "Every comparison with nan is False, so the condition never holds.",
        {
            "it stops at epoch 3": "It would if nan compared as a small number, but abs(previous - nan) is nan.",
            "Python raises an error": "Floating-point arithmetic with nan raises none.",
            "it stops at epoch 4": "nan - nan is nan as well, not 0.",
        },
    )


@asks
def sharing(draw: np.random.Generator) -> Question:
    """The gradient of a shared batch."""
    devices = int(draw.integers(2, 9))
    return Choice(
        f"A batch is shared out over {devices} devices in equal parts. The mean of their {devices} gradients is",
        "the gradient of the whole batch, but for rounding",
        "A mean over equal parts is the mean over all; with unequal parts it takes sums and counts.",
        {
            "an approximation that gets better with more devices": "Nothing is left out, so nothing is approximated.",
            "noisier than the gradient of the whole batch": "It is made of the same samples, so it has the same noise.",
            f"{devices} times the gradient of the whole batch": "That is their sum; the mean divides by it.",
        },
    )
