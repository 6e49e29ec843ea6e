"""A task of your own: one file with one function, plain PyTorch inside.

    paceline train examples/my_task.py --workers 2

The task here: tell apart the arms of three spirals that are wound into each other. Replace model, loss and data
with yours. Nothing in this file knows how many workers there are; the trainer takes care of that.
"""

import math

import numpy as np
import torch.nn.functional as F
from torch import nn

from paceline.tasks.task import Arrays, Defaults, Loss, Task, accuracy

ARMS = 3


def make_points(samples, seed):
    """Points (samples, 2) float32 on three noisy spirals, and their arm (samples,) int64."""
    random = np.random.default_rng(seed)
    arms = random.integers(ARMS, size=samples)
    radius = np.sqrt(random.uniform(0.01, 1.0, size=samples))  # the root spreads points evenly over the area
    angle = 2 * math.pi * (arms / ARMS + radius) + random.normal(scale=0.15, size=samples)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return points.astype(np.float32), arms.astype(np.int64)


def make_model():
    """A fresh network each time: (batch, 2) -> logits (batch, 3). The trainer seeds torch before it calls this."""
    return nn.Sequential(
        nn.Linear(2, 64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, ARMS),
    )


def loss(model, batch):
    """The loss of one batch as a sum and a count.

    Not a mean: the trainer adds sums and counts over workers and micro-batches and divides once, which is exact
    also when their batches differ in size. Count what you sum over: samples here, tokens in a language model.
    """
    points, arms = batch
    logits = model(points)
    return Loss(sum=F.cross_entropy(logits, arms, reduction="sum"), count=len(arms), outputs=logits)


def task():
    """What `paceline train` looks for in this file."""
    return Task(
        name="spirals",
        model=make_model,
        loss=loss,
        # Arrays suit data that fit in memory; any map-style torch Dataset works in their place.
        train_data=Arrays(*make_points(4000, seed=1), names=("points", "arms")),
        eval_data=Arrays(*make_points(1000, seed=2), names=("points", "arms")),
        metrics={"accuracy": accuracy},
        count="samples",  # the loss counts the samples of its batch; leave this out when it counts something else
        defaults=Defaults(global_batch=64, epochs=20, lr=0.1, schedule="cosine"),
        data_source="made from a fixed seed",
    )
