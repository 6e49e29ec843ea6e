"""A map-style dataset that draws random numbers, and a model with dropout: all that a resumed run has to get right."""

import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from paceline.tasks.classify import cross_entropy
from paceline.tasks.task import Task, accuracy


class Points(Dataset):
    """Noisy points; the noise is drawn anew each time, from three generators."""

    def __init__(self, samples: int) -> None:
        self.labels = torch.arange(samples) % 4

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        label = self.labels[index]
        noise = torch.randn(8) + float(np.random.randn()) + random.random()
        return nn.functional.one_hot(label, 8).float() * 3 + noise, label


def task() -> Task:
    """203 + 57 points."""
    return Task(
        name="points",
        model=lambda: nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 4)),
        loss=cross_entropy(),
        train_data=Points(203),
        eval_data=Points(57),
        metrics={"accuracy": accuracy},
    )
