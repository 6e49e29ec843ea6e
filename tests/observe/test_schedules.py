"""Learning-rate schedulers: how often the script steps them, and for how many steps they were made."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.optim import SGD, lr_scheduler

from paceline.records.observed_rank import ObservedStep, SchedulerSeen, ScriptEnded
from tests.observe.watched import Watched, line_of

MAKERS = {
    "StepLR": lambda optimizer: lr_scheduler.StepLR(optimizer, 2),
    "LambdaLR": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step),
    "CosineAnnealingLR": lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 10),
    "CosineAnnealingWarmRestarts": lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3),
    "OneCycleLR": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10),
    "CyclicLR": lambda optimizer: lr_scheduler.CyclicLR(optimizer, 0.01, 0.1),
    "ChainedScheduler": lambda optimizer: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.9)]
    ),
    "SequentialLR": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer, [lr_scheduler.LinearLR(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.9)], [2]
    ),
    "SWALR": lambda optimizer: torch.optim.swa_utils.SWALR(optimizer, 0.05),
}


@pytest.fixture
def optimizer(watched: Watched) -> SGD:
    """Of a small model."""
    return SGD(nn.Linear(4, 2).parameters(), 0.1, momentum=0.9)


@pytest.mark.parametrize("kind", MAKERS)
def test_steps_are_those_that_the_script_calls(watched: Watched, optimizer: SGD, kind: str) -> None:
    """One for each call: neither what constructors do nor what a chain does with its members counts."""
    scheduler = MAKERS[kind](optimizer)
    for _ in range(4):
        optimizer.step()
        scheduler.step()
    optimizer.step()
    watched.ends()

    assert watched.progress.scheduler_steps == 4
    assert [each.scheduler_steps for each in watched.of(ObservedStep)] == [0, 1, 1, 1, 1]
    assert watched.of(ScriptEnded)[0].scheduler_steps == 4


def test_a_scheduler_that_waits_for_a_plateau_counts_as_well(watched: Watched, optimizer: SGD) -> None:
    """Its step takes the metric."""
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer)
    for loss in (1.0, 0.5):
        scheduler.step(loss)

    assert watched.progress.scheduler_steps == 2


def test_the_horizon_of_a_scheduler_is_named(watched: Watched, optimizer: SGD) -> None:
    """Those that end after a number of steps say so; others have none."""
    lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)  # cosine
    lr_scheduler.OneCycleLR(optimizer, 0.1, epochs=3, steps_per_epoch=7)
    lr_scheduler.LinearLR(optimizer, total_iters=5)
    lr_scheduler.PolynomialLR(optimizer, total_iters=9)
    lr_scheduler.StepLR(optimizer, 2)

    seen = watched.of(SchedulerSeen)
    assert [(each.kind, each.horizon) for each in seen] == [
        ("CosineAnnealingLR", 100),
        ("OneCycleLR", 21),
        ("LinearLR", 5),
        ("PolynomialLR", 9),
        ("StepLR", None),
    ]
    assert seen[0].place.line == line_of("cosine", __file__)
