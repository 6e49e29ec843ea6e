"""`digits`: 8x8 images of digits that come with scikit-learn, and an MLP without batch norm."""

from __future__ import annotations

import gzip
import importlib.util
from pathlib import Path

import numpy as np
from torch import nn

from paceline.tasks.classify import cross_entropy
from paceline.tasks.table import BUILT_IN, TaskOptions
from paceline.tasks.task import Arrays, Task, accuracy

EVAL_EVERY = 5
"""Every fifth sample is kept for evaluation: 360 of 1,797."""


def load() -> tuple[np.ndarray, np.ndarray]:
    """Inputs (1797, 64) float32 in 0..1 and labels (1797,) int64."""
    values = _read()
    return (values[:, :-1] / 16.0).astype(np.float32), values[:, -1].astype(np.int64)


def _read() -> np.ndarray:
    """(1797, 65) pixels 0 to 16 and the label, from scikit-learn's file: importing scikit-learn takes a second."""
    package = importlib.util.find_spec("sklearn")
    for folder in package.submodule_search_locations or () if package is not None else ():
        path = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if path.is_file():
            with gzip.open(path, "rt", encoding="ascii") as file:
                return np.loadtxt(file, delimiter=",")
    from sklearn.datasets import load_digits  # a version that keeps it elsewhere

    images, labels = load_digits(return_X_y=True)
    return np.column_stack([images, labels])


def mlp() -> nn.Module:
    """64 inputs, two hidden layers, 10 logits."""
    return nn.Sequential(
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def build(options: TaskOptions) -> Task:
    """The task."""
    inputs, labels = load()
    held_out = np.arange(len(labels)) % EVAL_EVERY == 0
    return Task(
        name="digits",
        model=mlp,
        loss=cross_entropy(options.label_smoothing),
        train_data=Arrays(inputs[~held_out], labels[~held_out]),
        eval_data=Arrays(inputs[held_out], labels[held_out]),
        metrics={"accuracy": accuracy},
        count="samples",
        defaults=BUILT_IN["digits"].defaults,
        data_source="scikit-learn",
    )
