"""The step clock counts what the outermost optimizer does, once."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from torch import nn

from paceline.observe.model_registry import ModelRegistry
from paceline.observe.probes.optimizer_steps import OptimizerSteps
from paceline.observe.session import Session
from paceline.observe.sinks import MemorySink
from paceline.records.observed_rank import ObservedStep


class Derived(torch.optim.SGD):
    """Makes its step by that of the class above it, which torch hooks as well."""

    fails = False

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Step, and perhaps fail behind it."""
        super().step(closure)
        if self.fails:
            raise ValueError


class Outer(torch.optim.Optimizer):
    """Makes its step by that of another optimizer."""

    def __init__(self, weights: list[nn.Parameter], **options: Any) -> None:
        super().__init__(weights, {})
        self.inner = Derived(weights, **options)

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Step twice inside."""
        self.inner.step()
        self.inner.step()


@pytest.mark.parametrize("kind", [torch.optim.SGD, Derived, Outer])
def test_a_step_counts_once_however_it_is_made(kind: Any) -> None:
    """The step of a base class and that of an inner optimizer are parts of it; one that fails is none."""
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    torch.optim.SGD([weight], lr=0.1)  # torch hooks the step of each class whose instance is made
    optimizer = kind([weight], lr=0.1)
    sink = MemorySink()

    with Session(sink, [OptimizerSteps(ModelRegistry())]) as session:
        for fails in (False, True, False):
            Derived.fails = fails
            try:
                optimizer.step()
            except ValueError:
                continue
        Derived.fails = False

    assert session.failed == {}
    assert session.progress.step == (3 if kind is torch.optim.SGD else 2)
    assert {each.optimizer for each in sink.of(ObservedStep)} == {0}


class Retrying(Outer):
    """Goes on when the step inside fails."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Step once inside."""
        with contextlib.suppress(ValueError):
            self.inner.step()


def test_a_step_whose_inner_step_failed_counts_and_hides_no_later_one() -> None:
    """Torch says nothing when a step ends with an exception."""
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    optimizer = Retrying([weight], lr=0.1)
    with Session(MemorySink(), [OptimizerSteps(ModelRegistry())]) as session:
        for Derived.fails in (False, True, True, False):
            optimizer.step()

    assert session.progress.step == 4
