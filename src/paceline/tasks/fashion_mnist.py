"""`fashion-mnist` and `fashion-mnist-wrn`: 60,000 grey images of 28x28 in ten classes, 10,000 for evaluation
(Xiao et al. 2017)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from torch import nn

from paceline.tasks.classify import cross_entropy
from paceline.tasks.data.idx import open_idx
from paceline.tasks.data.images import PrepareImages
from paceline.tasks.data.obtain import obtain
from paceline.tasks.models.cnn import FashionCNN
from paceline.tasks.models.wide_resnet import WideResNet
from paceline.tasks.table import BUILT_IN, TaskOptions
from paceline.tasks.task import Arrays, Task, accuracy

MEAN, STD = 0.2860, 0.3530
"""Of the training set's pixels in 0..1 (computed over all 60,000 images)."""


def _task(name: str, model: Callable[[], nn.Module], options: TaskOptions) -> Task:
    """A task on Fashion-MNIST with any network that takes (batch, 1, 28, 28)."""
    obtained = obtain("fashion-mnist", Path(options.data_dir) if options.data_dir else None)
    raw = obtained.root / "FashionMNIST" / "raw"

    def arrays(split: str, prepare: PrepareImages) -> Arrays:
        return Arrays(
            open_idx(raw / f"{split}-images-idx3-ubyte"),
            open_idx(raw / f"{split}-labels-idx1-ubyte"),
            prepare=prepare,
            names=("images", "labels"),
        )

    return Task(
        name=name,
        model=model,
        loss=cross_entropy(options.label_smoothing),
        train_data=arrays("train", PrepareImages(MEAN, STD, options.augment)),
        eval_data=arrays("t10k", PrepareImages(MEAN, STD)),
        metrics={"accuracy": accuracy},
        count="samples",
        defaults=BUILT_IN[name].defaults,
        data_source=obtained.source,
    )


def build(options: TaskOptions) -> Task:
    """The task with the small CNN."""
    return _task("fashion-mnist", FashionCNN, options)


def build_wide_resnet(options: TaskOptions) -> Task:
    """The task `fashion-mnist-wrn`, with a WideResNet-16 whose width the user sets; 1 unless said."""
    width = 1.0 if options.width is None else options.width
    return _task("fashion-mnist-wrn", partial(WideResNet, depth=16, width=width), options)
