"""The quiz of lab 8."""

from __future__ import annotations

import math

import numpy as np

from paceline_course.quiz import Choice, Number, Question, asks


@asks
def rules(draw: np.random.Generator) -> Question:
    """Linear and square root."""
    rate, base = round(float(draw.uniform(0.02, 0.1)), 2), 64
    per_worker, workers = int(draw.choice([32, 64])), int(draw.choice([8, 16]))
    k = per_worker * workers / base
    return Number(
        f"A rate of {rate} is good at a batch of {base}. "
        f"What does the square-root rule give for {workers} workers with {per_worker} samples each? "
        "Give three significant digits.",
        rate * math.sqrt(k),
        f"k = {per_worker * workers} / {base} = {k:g}, and {rate} x {math.sqrt(k):.3g}; "
        f"the linear rule gives {rate * k:.3g}.",
    )


@asks
def warmup(draw: np.random.Generator) -> Question:
    """Steps, not epochs."""
    samples, batch, epochs = 50_000, int(draw.choice([1000, 2000, 5000])), 5
    return Number(
        f"{samples:,} samples, a batch of {batch:,}: how many steps are {epochs} epochs of warm-up?",
        epochs * samples // batch,
        f"{samples // batch} steps an epoch. A whole training may have few more.",
        tolerance=0.0,
    )


@asks
def velocity(draw: np.random.Generator) -> Question:
    """1 / (1 - mu)."""
    mu = float(draw.choice([0.8, 0.9, 0.95]))
    return Number(
        f"Momentum {mu}, and the same gradient in every step: by what factor is a step in the end longer than without?",
        1 / (1 - mu),
        f"1 + {mu} + {mu}² + ... = 1 / (1 - {mu}).",
    )


@asks
def lars(draw: np.random.Generator) -> Question:
    """What drops out."""
    factor = int(draw.choice([10, 100]))
    return Choice(
        f"LARS without decay: the loss is multiplied by {factor}. What happens to the steps of the weight matrices?",
        "nothing: only the direction of each gradient counts",
        "The length of the gradient drops out of ratio times gradient.",
        {
            f"they become {factor} times as long": "So it is with SGD.",
            f"they become {factor} times as short": "The ratio does; the gradient is as many times longer.",
            "they become as long as the weights": "They are in proportion to them, as before.",
        },
    )


@asks
def evidence(draw: np.random.Generator) -> Question:
    """An interval that contains zero."""
    middle = round(float(draw.uniform(0.2, 0.6)), 1)
    wide = round(middle + float(draw.uniform(0.2, 0.8)), 1)
    return Choice(
        f"Warm-up brings {middle} points, 95 % interval {middle - wide:.1f} to {middle + wide:.1f}, three seeds each. "
        "What do you know?",
        "not yet whether it helps",
        "The interval contains 0; more seeds make it narrower.",
        {
            f"it helps by {middle} points": "That is the middle of what is possible, and 0 is possible as well.",
            "it does not help": "An interval that contains 0 also contains gains.",
            "it helps with a probability of 95 %": "The 95 % are those of the method: so many of its intervals contain "
            "the true difference. They say nothing of how likely this difference is to be above 0.",
        },
    )
