"""Where the benchmark's data set is: the real one, or one of the same shape made from a seed."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from paceline.records.rundir import write_atomic

TRAIN_SAMPLES, TEST_SAMPLES = 60_000, 10_000


REAL = "Fashion-MNIST, 60,000 images of 28x28, checksums right"
"""What a record says of it: where it lies on one machine says nothing to others."""


def real_root(data_dir: Path | None) -> Path:
    """Root of Fashion-MNIST in torchvision's layout; fetched when it is missing."""
    from paceline.tasks.data.obtain import obtain

    return obtain("fashion-mnist", data_dir).root


def synthetic_root(root: Path, train: int = TRAIN_SAMPLES, test: int = TEST_SAMPLES, seed: int = 0) -> Path:
    """Write noise in torchvision's layout: the same work for a loop, no meaning in it."""
    random = np.random.default_rng(seed)
    raw = root / "FashionMNIST" / "raw"
    for split, samples in (("train", train), ("t10k", test)):
        _write_idx(raw / f"{split}-images-idx3-ubyte", random.integers(256, size=(samples, 28, 28), dtype=np.uint8))
        _write_idx(raw / f"{split}-labels-idx1-ubyte", random.integers(10, size=samples, dtype=np.uint8))
    return root


def _write_idx(path: Path, array: np.ndarray) -> None:
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    write_atomic(path, header + array.tobytes())
