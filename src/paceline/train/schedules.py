"""The learning rate as a pure function of the step: nothing to save, nothing that can run out of step.

Steps count optimizer updates from 0. With T steps in all and w of warm-up, step s has the rate
`lr * (s + 1) / w` while s < w, and `lr * shape((s - w) / (T - w))` afterwards; shape(0) = 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


def constant(progress: float) -> float:
    """1 throughout."""
    del progress
    return 1.0


def linear(progress: float) -> float:
    """A straight line from 1 to 0."""
    return 1.0 - progress


def cosine(progress: float) -> float:
    """Half a cosine from 1 to 0 (Loshchilov and Hutter 2017, without restarts)."""
    return 0.5 * (1.0 + math.cos(math.pi * progress))


SHAPES: dict[str, Callable[[float], float]] = {"constant": constant, "linear": linear, "cosine": cosine}


@dataclass(frozen=True)
class Schedule:
    """A learning rate for each step.

    Attributes:
        shape: a name of `SHAPES`.
        lr: the peak.
        total_steps: T, at least 1.
        warmup_steps: w, 0 <= w; linear, a step at a time (Goyal et al. 2017).
    """

    shape: str
    lr: float
    total_steps: int
    warmup_steps: int = 0

    def at(self, step: int) -> float:
        """The rate of update `step`, 0 for the first."""
        if step < self.warmup_steps:
            return self.lr * (step + 1) / self.warmup_steps
        rest = max(1, self.total_steps - self.warmup_steps)
        return self.lr * SHAPES[self.shape](min(1.0, (step - self.warmup_steps) / rest))
