"""Random vectors that depend on a seed and a number only: equal on all ranks, devices and world sizes.

They are drawn on the CPU in float64 and rounded to the dtype that is asked for.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

_START, _PROBE = 0, 1  # keys that keep the streams of one seed apart


def start_vector(size: int, seed: int, number: int) -> Tensor:
    """(size,) float64 standard normal numbers on the CPU; the `number`-th of its seed."""
    return torch.from_numpy(_generator(seed, _START, number).standard_normal(size))


def probe(
    size: int, seed: int, number: int, kind: Literal["rademacher", "gaussian"], dtype: torch.dtype, device: torch.device
) -> Tensor:
    """(size,) the `number`-th probe of its seed: E[z z^T] = identity.

    Args:
        kind: `rademacher`, each number -1 or 1 with equal probability; `gaussian`, standard normal.
    """
    generator = _generator(seed, _PROBE, number)
    drawn = generator.standard_normal(size) if kind == "gaussian" else 2.0 * generator.integers(0, 2, size) - 1.0
    return torch.from_numpy(drawn).to(device, dtype)


def _generator(seed: int, key: int, number: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, key, number))))
