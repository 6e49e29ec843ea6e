"""`shapes`: procedural images in ten classes. Nothing to download, as many as one likes, as hard as one likes.

Each image is 20x20 and grey: one shape, anywhere, of any size and turn, lighter or darker than the ground, under noise.
An evaluation on fresh images is one seed away, so nobody can have seen them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from paceline.tasks.classify import cross_entropy
from paceline.tasks.models.small_cnn import SmallCNN
from paceline.tasks.table import BUILT_IN, TaskOptions
from paceline.tasks.task import Arrays, Task, accuracy

SIDE = 20
TRAIN_SAMPLES, EVAL_SAMPLES = 8192, 2048
NOISE = 0.08
"""Standard deviation of a pixel's noise, where a shape differs from its ground by 0.25 to 0.5."""

_EDGE = 0.12
"""Width of a shape's edge in its own units, about a pixel: without it small shapes would depend on rounding."""


Coordinates = NDArray[np.float64]


def _disc(x: Coordinates, y: Coordinates, radius: float = 0.85) -> Coordinates:
    return np.hypot(x, y) - radius


def _box(x: Coordinates, y: Coordinates, half_width: float, half_height: float) -> Coordinates:
    return np.maximum(np.abs(x) - half_width, np.abs(y) - half_height)


def _triangle(x: Coordinates, y: Coordinates) -> Coordinates:
    sides = [x * np.cos(angle) + y * np.sin(angle) for angle in (np.pi / 2, np.pi * 7 / 6, np.pi * 11 / 6)]
    outside: Coordinates = np.maximum(np.maximum(sides[0], sides[1]), sides[2])
    return outside - 0.5


DISTANCES: dict[str, Callable[[Coordinates, Coordinates], Coordinates]] = {
    "disc": _disc,
    "ring": lambda x, y: np.abs(np.hypot(x, y) - 0.72) - 0.16,
    "square": lambda x, y: _box(x, y, 0.75, 0.75),
    "frame": lambda x, y: np.abs(_box(x, y, 0.68, 0.68)) - 0.16,
    "triangle": _triangle,
    "cross": lambda x, y: np.minimum(_box(x, y, 0.95, 0.24), _box(x, y, 0.24, 0.95)),
    "bars": lambda x, y: np.minimum(_box(x, y - 0.5, 0.9, 0.2), _box(x, y + 0.5, 0.9, 0.2)),
    "moon": lambda x, y: np.maximum(_disc(x, y, 0.95), 0.75 - np.hypot(x - 0.5, y)),
    "hook": lambda x, y: np.minimum(_box(x + 0.55, y, 0.22, 0.85), _box(x, y - 0.63, 0.77, 0.22)),
    "pair": lambda x, y: np.minimum(_disc(x - 0.55, y, 0.4), _disc(x + 0.55, y, 0.4)),
}
"""Of each class, the distance from its outline in the axes of the shape; below 0 within it."""
CLASSES = tuple(DISTANCES)


def draw(samples: int, seed: int, noise: float = NOISE) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Images (samples, 1, 20, 20) about 0 with unit-sized variation, and labels (samples,) of 0..9.

    Args:
        samples: 0 or more.
        seed: others give other images.
        noise: standard deviation of each pixel's noise, 0 or more.
    """
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, 0x5A9E5))))
    labels = generator.integers(len(CLASSES), size=samples)
    size = generator.uniform(4.0, 7.5, samples)
    centre = SIDE / 2 - 0.5 + generator.uniform(-3.0, 3.0, (2, samples))
    turn = generator.uniform(0.0, 2 * np.pi, samples)
    contrast = generator.uniform(0.25, 0.5, samples) * generator.choice([-1.0, 1.0], samples)
    x, y = _in_its_own_axes(size, centre, turn)
    inside = np.zeros_like(x)
    for label, distance in enumerate(DISTANCES.values()):
        rows = labels == label
        inside[rows] = np.clip(0.5 - distance(x[rows], y[rows]) / _EDGE, 0.0, 1.0)
    images = contrast[:, None] * inside + noise * generator.standard_normal(x.shape)
    return (images / 0.3).astype(np.float32).reshape(samples, 1, SIDE, SIDE), labels.astype(np.int64)


def build(options: TaskOptions) -> Task:
    """The task."""
    return Task(
        name="shapes",
        model=SmallCNN,
        loss=cross_entropy(options.label_smoothing),
        train_data=Arrays(*draw(TRAIN_SAMPLES, seed=1)),
        eval_data=Arrays(*draw(EVAL_SAMPLES, seed=2)),
        metrics={"accuracy": accuracy},
        count="samples",
        defaults=BUILT_IN["shapes"].defaults,
        data_source="drawn from a fixed seed",
    )


def _in_its_own_axes(
    size: NDArray[np.float64], centre: NDArray[np.float64], turn: NDArray[np.float64]
) -> tuple[Coordinates, Coordinates]:
    """Every pixel (samples, 400) in the axes of its image's shape, in which that has about the radius 1."""
    rows, columns = np.divmod(np.arange(SIDE * SIDE), SIDE)
    across = (columns - centre[0][:, None]) / size[:, None]
    down = (rows - centre[1][:, None]) / size[:, None]
    cosine, sine = np.cos(turn)[:, None], np.sin(turn)[:, None]
    return across * cosine + down * sine, down * cosine - across * sine
