"""The data set as whole tensors in memory, and the order in which ranks go through it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from contestants.base import MEAN, STD
from paceline.tasks.data.idx import open_idx


def load(root: Path) -> tuple[Tensor, Tensor]:
    """Training images (n, 1, 28, 28) uint8 and labels (n,) int64; the files are mapped, one copy a machine."""
    raw = root / "FashionMNIST" / "raw"
    images = torch.from_numpy(open_idx(raw / "train-images-idx3-ubyte")).unsqueeze(1)
    labels = torch.from_numpy(open_idx(raw / "train-labels-idx1-ubyte")).to(torch.int64)
    return images, labels


def normalise(images: Tensor) -> Tensor:
    """uint8 pixels (batch, 1, 28, 28) to normalised float32, one pass for scale and shift each, in place.

    With one channel, channels-last and contiguous are the same memory: there is nothing to convert.
    """
    return images.to(torch.float32).mul_(1.0 / (255.0 * STD)).sub_(MEAN / STD)


def index_batches(samples: int, batch: int, rank: int, world: int, seed: int) -> Iterator[Tensor]:
    """This rank's sample indices (batch,), for ever: a new permutation an epoch, whole global batches only."""
    generator = torch.Generator().manual_seed(seed)
    if samples < batch * world:
        raise ValueError(f"{samples} samples are fewer than one global batch of {batch * world}")
    while True:
        order = torch.randperm(samples, generator=generator)
        for start in range(0, samples - batch * world + 1, batch * world):
            yield order[start + rank * batch : start + (rank + 1) * batch]
