"""The images of lab 2: Fashion-MNIST where this machine has it, else shapes that a program draws."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.records.errors import PacelineError
from paceline.tasks.data.arrays import Like
from paceline.tasks.data.obtain import whereabouts
from paceline.tasks.fashion_mnist import build
from paceline.tasks.shapes import CLASSES, draw
from paceline.tasks.table import TaskOptions

TRAIN, HELD = 8192, 1024
_CLOTHES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")


@dataclass(frozen=True)
class Images:
    """What is trained on.

    Attributes:
        name: for people.
        target: accuracy on held-out images that the sweep waits for.
        classes: their names, in the order of labels.
    """

    name: str
    target: float
    classes: tuple[str, ...]

    @property
    def procedural(self) -> bool:
        """Whether a program draws them."""
        return self.name == SHAPES.name

    def part(self, held: bool = False) -> tuple[Tensor, Tensor]:
        """Images (samples, 1, h, w) and labels (samples,): those to train on, or those held out.

        Of Fashion-MNIST the first ones of each file, so that a training takes seconds.
        """
        samples = HELD if held else TRAIN
        if self.procedural:
            images, labels = draw(samples, seed=2 if held else 1)
            return torch.from_numpy(images), torch.from_numpy(labels)
        task = build(TaskOptions())
        data = task.eval_data if held else task.train_data
        batch: tuple[Tensor, Tensor] = data.batch(
            torch.arange(samples), None, Like(torch.device("cpu"), torch.float32, channels_last=False)
        )
        return batch


SHAPES = Images("procedural shapes", 0.70, tuple(CLASSES))
FASHION = Images("Fashion-MNIST", 0.78, _CLOTHES)


def chosen() -> Images:
    """What this machine has; fetches nothing."""
    try:
        return SHAPES if whereabouts("fashion-mnist").place is None else FASHION
    except PacelineError:
        return SHAPES
