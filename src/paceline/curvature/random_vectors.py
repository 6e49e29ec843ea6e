"""Random vectors that depend on a seed and numbers only: equal on all ranks, devices and world sizes.

They are drawn on the CPU in float64 and rounded to the dtype that is asked for.
"""

from __future__ import annotations

import enum

import numpy as np
import torch
from torch import Tensor

from paceline.curvature.operator import Space


class Stream(enum.IntEnum):
    """Keys that keep the random numbers of one seed apart. Each number is part of the results of a seed."""

    START, PROBE, DIRECTION, BOX_START, SUBSPACE, BALL_START = range(6)


def random_stream(stream: Stream, seed: int, *numbers: int) -> np.random.Generator:
    """An independent generator for each combination of arguments."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, int(stream), *numbers))))


def start_vector(size: int, seed: int, number: int) -> Tensor:
    """(size,) float64 standard normal numbers on the CPU; the `number`-th of its seed."""
    return torch.from_numpy(random_stream(Stream.START, seed, number).standard_normal(size))


def probe(space: Space, seed: int, number: int) -> Tensor:
    """(n,) the `number`-th Rademacher probe of its seed: each number is -1 or 1, so E[z z^T] = identity."""
    signs = 2.0 * random_stream(Stream.PROBE, seed, number).integers(0, 2, space.size) - 1.0
    return torch.from_numpy(signs).to(space.device, space.dtype)
