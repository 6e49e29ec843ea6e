"""Gradient clipping: when it happens, whether gradients were scaled then, and how large they were."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

from paceline.records.observed_rank import ObservedStep
from tests.observe.watched import Watched, backward, line_of


@pytest.fixture
def model(group: None, watched: Watched) -> DistributedDataParallel:
    """Wrapped, so that it is known from the first step on."""
    return DistributedDataParallel(nn.Linear(4, 2))


@pytest.fixture
def optimizer(model: DistributedDataParallel) -> SGD:
    """Of the model."""
    return SGD(model.parameters(), 0.1)


def norm_of(model: nn.Module) -> float:
    """Of all gradients."""
    return torch.cat([each.grad.flatten() for each in model.parameters()]).norm().item()


@pytest.mark.parametrize("given", ["list", "generator", "keyword"])
def test_norms_are_those_before_clipping(watched: Watched, model, optimizer, given: str) -> None:
    """Whatever clipping makes of them."""
    optimizer.zero_grad()
    backward(model)
    expected = norm_of(model)
    if given == "keyword":
        nn.utils.clip_grad_norm_(parameters=list(model.parameters()), max_norm=expected / 10)
    else:
        parameters = model.parameters() if given == "generator" else list(model.parameters())
        nn.utils.clip_grad_norm_(parameters, expected / 10)  # clip
    optimizer.step()

    (step,) = watched.of(ObservedStep)
    assert (step.clips, step.clips_before_backward, step.clips_while_scaled) == (1, 0, 0)
    assert step.norm_before_clip
    assert step.norm_after_backward == pytest.approx(expected)
    assert step.norm_at_step == pytest.approx(expected)
    assert norm_of(model) == pytest.approx(expected / 10, rel=1e-3)
    if given != "keyword":
        assert step.clip_place.line == line_of("clip", __file__)


def test_clipping_before_the_last_backward_pass_is_counted_apart(watched: Watched, model, optimizer) -> None:
    """Three micro-batches, each followed by clipping: two of them come before the last backward pass."""
    for _ in range(2):
        for _ in range(3):
            backward(model)
            nn.utils.clip_grad.clip_grad_value_(model.parameters(), 0.1)
        optimizer.step()

    assert [(each.clips, each.clips_before_backward) for each in watched.of(ObservedStep)] == [(3, 2), (3, 2)]


@pytest.mark.parametrize(("unscale", "while_scaled"), [(False, 1), (True, 0)])
def test_clipping_scaled_gradients_is_told_from_clipping_unscaled_ones(
    watched: Watched, model, optimizer, unscale: bool, while_scaled: int
) -> None:
    """A threshold means nothing for gradients that carry a scale of 1024."""
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(model(torch.ones(2, 4)).sum()).backward()
    if unscale:
        scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()

    (step,) = watched.of(ObservedStep)
    assert (step.clips, step.clips_while_scaled, step.loss_scale) == (1, while_scaled, 1024.0)
    assert step.unscaled_by == 1024.0  # `step` divides where the script did not


def test_a_scaler_that_is_off_scales_nothing(watched: Watched, model, optimizer) -> None:
    """As scripts make it that may run with and without."""
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    scaler.scale(model(torch.ones(2, 4)).sum()).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)

    (step,) = watched.of(ObservedStep)
    assert (step.clips_while_scaled, step.loss_scale, step.unscaled_by) == (0, None, 1.0)
