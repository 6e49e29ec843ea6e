"""`fashion-mnist-wrn`: Fashion-MNIST with a WideResNet-16 whose width the user sets."""

from __future__ import annotations

from functools import partial

from paceline.tasks.fashion_mnist import fashion_mnist_task
from paceline.tasks.models.wide_resnet import WideResNet
from paceline.tasks.table import TaskOptions
from paceline.tasks.task import Task


def build(options: TaskOptions) -> Task:
    """The task; width 1 unless said."""
    width = 1.0 if options.width is None else options.width
    return fashion_mnist_task("fashion-mnist-wrn", partial(WideResNet, depth=16, width=width), options)
