"""The learning rate as a pure function of the step: nothing to save, nothing that can run out of step.

Steps count optimizer updates from 0. With T steps in all and w of warm-up, step s has the rate
`lr * warm-up(s)` while s < w, and `lr * shape(s)` afterwards; a shape is 1 at step w and never rises.

    linear warm-up    start + (1 - start) (s + 1) / w     per step; the last one has the peak (Goyal et al. 2017)
    constant warm-up  start                               then at once the peak (the same paper's worse alternative)
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from paceline.records.errors import PacelineError

WARMUPS = ("linear", "constant")
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)\s*(steps?|s|ep|epochs?|e)?", re.IGNORECASE)


@dataclass(frozen=True)
class Duration:
    """A length of training, so many steps or so many epochs; users give `200`, `2ep`, `0.5ep`."""

    value: float
    in_epochs: bool

    @classmethod
    def parse(cls, text: str, flag: str) -> Duration:
        """Read what stands behind `flag`.

        Raises:
            PacelineError: neither a whole number of steps nor a number of epochs.
        """
        match = _LENGTH.fullmatch(text.strip())
        value = float(match[1]) if match else math.nan
        in_epochs = match is not None and (match[2] or "s").lower().startswith("e")
        if not math.isfinite(value) or not (in_epochs or value.is_integer()):
            raise PacelineError(
                f"{flag} {text} is no length of training", hint=f"steps ({flag} 200) or epochs ({flag} 2ep)"
            )
        return cls(value, in_epochs)

    def steps(self, steps_per_epoch: int) -> int:
        """As whole steps, rounded to the nearest."""
        return round(self.value * steps_per_epoch) if self.in_epochs else int(self.value)


def parse_interval(text: str, flag: str) -> Duration:
    """Read the length between two events of a training.

    Raises:
        PacelineError: no length, or none at all.
    """
    found = Duration.parse(text, flag)
    if found.value == 0:
        raise PacelineError(f"{flag} {text} is out of range", hint="at least one step")
    return found


@dataclass(frozen=True)
class Schedule:
    """A learning rate for each step.

    Attributes:
        shape: a name of `SHAPES`.
        lr: the peak.
        total_steps: T, at least 1.
        warmup_steps: w, 0 <= w.
        warmup_shape: of `WARMUPS`.
        warmup_from: the fraction of the peak at which it begins, 0 to 1.
        cooldown_steps: of `wsd`, at the end.
        drops: of `step`: those steps from which on the rate is `drop_factor` times what it was, ascending.
        drop_factor: above 0 and below 1.
    """

    shape: str
    lr: float
    total_steps: int
    warmup_steps: int = 0
    warmup_shape: str = "linear"
    warmup_from: float = 0.0
    cooldown_steps: int = 0
    drops: tuple[int, ...] = ()
    drop_factor: float = 0.1

    def at(self, step: int) -> float:
        """The rate of update `step`, 0 for the first."""
        if step < self.warmup_steps:
            return self.lr * self._warmup(step)
        return self.lr * SHAPES[self.shape](self, step)

    def progress(self, step: int) -> float:
        """How much of the run after the warm-up lies behind, 0 to 1."""
        rest = max(1, self.total_steps - self.warmup_steps)
        return min(1.0, (step - self.warmup_steps) / rest)

    def _warmup(self, step: int) -> float:
        if self.warmup_shape == "constant":
            return self.warmup_from
        return self.warmup_from + (1.0 - self.warmup_from) * (step + 1) / self.warmup_steps


def constant(schedule: Schedule, step: int) -> float:
    """1 throughout."""
    del schedule, step
    return 1.0


def linear(schedule: Schedule, step: int) -> float:
    """A straight line from 1 to 0."""
    return 1.0 - schedule.progress(step)


def cosine(schedule: Schedule, step: int) -> float:
    """Half a cosine from 1 to 0 (Loshchilov and Hutter 2017, without restarts)."""
    return 0.5 * (1.0 + math.cos(math.pi * schedule.progress(step)))


def wsd(schedule: Schedule, step: int) -> float:
    """Warm-up, stable, decay: 1, then 1 - sqrt(x) over the cooldown (Haegele et al. 2024, arXiv 2405.18392)."""
    start = max(schedule.warmup_steps, schedule.total_steps - schedule.cooldown_steps)
    if step < start:
        return 1.0
    return 1.0 - math.sqrt(min(1.0, (step - start) / max(1, schedule.total_steps - start)))


def step(schedule: Schedule, step: int) -> float:
    """Drops by a factor at given steps (He et al. 2016)."""
    return schedule.drop_factor ** sum(step >= drop for drop in schedule.drops)


SHAPES: dict[str, Callable[[Schedule, int], float]] = {
    "constant": constant,
    "linear": linear,
    "cosine": cosine,
    "wsd": wsd,
    "step": step,
}


def rate_jump(schedule: Schedule, before: float, step: int) -> str:
    """A note where a resumed run goes on with a rate that its schedule did not lead to; empty where it does not jump.

    Args:
        schedule: of the run as it is now.
        before: the rate of the last step that was done.
        step: how many steps were done.
    """
    expected = schedule.at(max(step - 1, 0))
    if not 0 < step < schedule.total_steps or math.isclose(before, expected, rel_tol=1e-9, abs_tol=1e-300):
        return ""
    after = schedule.at(step)
    times = f", {after / before:.3g} times as much" if before and after > before else ""
    return (
        f"the learning rate jumps: step {step:,}, the last one done, had {before:.4g}, and step {step + 1:,} has "
        f"{after:.4g}{times}. The run has another schedule now: {schedule.shape} over {schedule.total_steps:,} steps"
    )
