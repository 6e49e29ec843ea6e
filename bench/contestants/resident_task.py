"""The task `fashion-mnist` on files that need not be the real ones (--synthetic has no checksum to match)."""

from __future__ import annotations

from pathlib import Path

from contestants.base import MEAN, STD
from paceline.tasks.classify import cross_entropy
from paceline.tasks.data.idx import open_idx
from paceline.tasks.data.images import PrepareImages
from paceline.tasks.models.cnn import FashionCNN
from paceline.tasks.task import Arrays, Task, accuracy


def task(data_dir: str) -> Task:
    """The same model, loss and preparation as the built-in task."""
    raw = Path(data_dir) / "FashionMNIST" / "raw"

    def arrays(split: str) -> Arrays:
        files = (raw / f"{split}-images-idx3-ubyte", raw / f"{split}-labels-idx1-ubyte")
        return Arrays(*map(open_idx, files), prepare=PrepareImages(MEAN, STD))

    return Task(
        name="fashion-mnist-bench",
        model=FashionCNN,
        loss=cross_entropy(),
        train_data=arrays("train"),
        eval_data=arrays("t10k"),
        metrics={"accuracy": accuracy},
        count="samples",
    )
