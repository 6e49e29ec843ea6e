"""The network and pipeline of fashion-mnist on random images: no data set is needed."""

import numpy as np

from paceline.tasks.classify import cross_entropy
from paceline.tasks.data.images import PrepareImages
from paceline.tasks.models.cnn import FashionCNN
from paceline.tasks.task import Arrays, Task, accuracy


def task(augment: tuple[str, ...] = ()) -> Task:
    """500 + 101 random images."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (601, 28, 28), dtype=np.uint8)
    labels = generator.integers(0, 10, 601, dtype=np.uint8)
    return Task(
        name="random-images",
        model=FashionCNN,
        loss=cross_entropy(),
        train_data=Arrays(images[:500], labels[:500], prepare=PrepareImages(0.5, 0.29, augment)),
        eval_data=Arrays(images[500:], labels[500:], prepare=PrepareImages(0.5, 0.29)),
        metrics={"accuracy": accuracy},
        count="samples",
    )
