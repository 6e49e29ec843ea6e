"""At which batch sizes trainings are made. Pure functions of numbers; nothing here imports torch."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.records.errors import PacelineError
from paceline.stats.hyperbola import LEAST_BATCHES

LENGTHS = (1, 4, 16, 64)
"""Batches of a sweep, in units of the task's own."""
BRANCHES = (1, 2, 4, 8, 16)
"""Batches of branches, in units of the run's."""
PARTS = 4
"""Steps that an epoch has at least. With fewer, most of what a larger batch would add is not there: a batch beyond the
training set is the whole set, whatever its size."""


def sizes_of_sweep(base: int, samples: int, asked: Sequence[int] | None = None) -> list[int]:
    """Batch sizes of trainings to a target, ascending.

    Args:
        base: the task's own batch.
        samples: in the training set.
        asked: by the user; None takes `LENGTHS` times the base as far as the training set allows, and where these are
            too few for a critical batch, a fourth and a sixteenth of the base as well.

    Raises:
        PacelineError: one is too large for the training set, or no three sizes fit.
    """
    if asked is not None:
        _require_steps(asked, samples)
        return sorted(asked)
    found = [times * base for times in LENGTHS if times * base <= samples // PARTS]
    smaller = base // LENGTHS[1]
    while len(found) < LEAST_BATCHES and smaller >= 1:
        if smaller <= samples // PARTS:
            found.insert(0, smaller)
        smaller //= LENGTHS[1]
    if len(found) < LEAST_BATCHES:
        raise PacelineError(
            f"{samples:,} training samples are too few for {LEAST_BATCHES} batch sizes",
            why=f"a batch is at most one in {PARTS} of them, and the task's own batch is {base:,}",
            hint=f"--batches with {LEAST_BATCHES} sizes up to {samples // PARTS:,}, or a task with more samples",
        )
    return found


def sizes_of_branches(base: int, samples: int, asked: Sequence[int] | None = None) -> list[int]:
    """Batch sizes of branches, ascending, the run's own among them.

    Args:
        base: the run's batch.
        samples: in its training set.
        asked: by the user; None takes `BRANCHES` times the base as far as the training set allows.

    Raises:
        PacelineError: one is too large for the training set, or there is none but the run's own.
    """
    if base > samples // PARTS:
        raise PacelineError(
            f"the run's batch of {base:,} leaves no room for branches on {samples:,} training samples",
            why=f"an epoch would have fewer than {PARTS} steps",
            hint=f"name a run with a batch up to {samples // PARTS:,}",
        )
    if asked is not None:
        _require_steps(asked, samples)
    wanted = asked if asked is not None else [n * base for n in BRANCHES if n * base <= samples // PARTS]
    sizes = sorted({base, *wanted})
    if len(sizes) < 2:
        raise PacelineError(
            f"there is no other batch to compare the run's own of {base:,} with",
            why=f"a batch is at most one in {PARTS} of the {samples:,} training samples",
            hint=f"--batches with others, up to {samples // PARTS:,}",
        )
    return sizes


def _require_steps(asked: Sequence[int], samples: int) -> None:
    largest = max(asked)
    if largest > samples // PARTS:
        raise PacelineError(
            f"a batch of {largest:,} is more than one in {PARTS} of the {samples:,} training samples",
            why=f"an epoch would have fewer than {PARTS} steps, and the last of them is not whole",
            hint=f"--batches up to {samples // PARTS:,}",
        )
