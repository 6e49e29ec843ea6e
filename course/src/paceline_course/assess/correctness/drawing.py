"""What is drawn for a grading: sizes, seeds and worlds of the runs of part A."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paceline_course.assess.oracle import Setting

PRIMES = (181, 191, 193, 197, 199, 211, 223, 227, 229, 233, 239, 241)
EVAL_PRIMES = (97, 101, 103, 107, 109, 113, 127, 131)


@dataclass(frozen=True)
class Trial:
    """One training: what, and on how many ranks."""

    setting: Setting
    world: int


@dataclass(frozen=True)
class Drawn:
    """All trainings of part A.

    Attributes:
        first: three ranks, a batch that they cannot share evenly, an uneven last batch.
        alone: one process, without torchrun.
        variants: the tied network on two ranks with one sample in the last batch; the frozen one on four with fewer
            samples in it than ranks; batch norms on three.
        even: as `first`, but everything divides evenly: tells what a failure is about.
        stop: where accuracy is to end the training; two ranks. Several, since not in every one a wrong decision shows.
        clocks: where a clock is to end it; three ranks.
        resume: with batch norms, two or three ranks.
    """

    first: Trial
    alone: Trial
    variants: tuple[Trial, ...]
    even: Trial
    stop: tuple[Trial, ...]
    clocks: Trial
    resume: Trial


def draw(seed: int) -> Drawn:
    """For one grading."""
    numbers = np.random.Generator(np.random.Philox(seed))

    def setting(samples: int, batch: int, variant: str, epochs: int, rate: float = 0.05) -> Setting:
        return Setting(
            samples=samples,
            eval_samples=int(numbers.choice(EVAL_PRIMES)),
            batch=batch,
            epochs=epochs,
            variant=variant,
            seed=int(numbers.integers(1, 10_000)),
            data_seed=int(numbers.integers(10, 900_000)),
            rate=rate,
        )

    def with_rest(batch: int, rest: int) -> int:
        return batch * int(numbers.integers(5, 8)) + rest

    prime = int(numbers.choice(PRIMES))
    odd = int(numbers.choice([b for b in (25, 26, 28, 29, 31, 32) if prime % b % 3]))
    two, four, three = (int(numbers.integers(low, low + 6)) for low in (30, 27, 28))
    return Drawn(
        first=Trial(setting(prime, odd, "plain", 3), 3),
        alone=Trial(setting(prime, odd, "norm", 2), 1),
        variants=(
            Trial(setting(with_rest(two, 1), two, "tied", 2), 2),
            Trial(setting(with_rest(four, int(numbers.integers(1, 4))), four, "frozen", 2), 4),
            Trial(setting(with_rest(three, int(numbers.integers(2, 12))), three, "norm", 2), 3),
        ),
        even=Trial(setting(24 * 8, 24, "plain", 2), 3),
        stop=tuple(Trial(setting(int(numbers.choice(PRIMES)), 20, "plain", 8, rate=0.2), 2) for _ in range(6)),
        clocks=Trial(setting(int(numbers.choice(PRIMES)), 31, "plain", 5), 3),
        resume=Trial(setting(with_rest(20, 7), 20, "norm", 4), int(numbers.integers(2, 4))),
    )
