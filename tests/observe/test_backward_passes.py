"""Backward passes: those that no forward pass of a wrapper precedes, their losses, and gradients taken by hand."""

from __future__ import annotations

import contextlib
import math

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD
from torch.utils.checkpoint import checkpoint

from paceline.observe.probes.backward_passes import BackwardClock
from paceline.observe.schedule import is_recorded
from paceline.pool.warm_ranks import run_ranks
from paceline.records.observed_rank import GradientTaken, NonFinite, ObservedStep
from tests.observe import ranks
from tests.observe.watched import Watched, backward, line_of

pytestmark = pytest.mark.usefixtures("group")


class Model(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        """One behind the other."""
        return self.second(self.first(x))


def trained() -> tuple[DistributedDataParallel, SGD]:
    """A wrapped model and its optimizer."""
    model = DistributedDataParallel(Model())
    return model, SGD(model.parameters(), 0.01)


def test_forward_passes_past_the_wrapper_are_counted_and_the_line_is_found(watched: Watched) -> None:
    """The line is that of the script which calls the model, not one in the model's own `forward`."""
    model, optimizer = trained()
    for _ in range(3):
        loss = model.module(torch.ones(2, 4)).sum()  # past the wrapper
        loss.backward()  # backward
        optimizer.step()

    steps = watched.of(ObservedStep)
    assert [(each.forwards, each.backwards, each.backwards_unwrapped) for each in steps] == [(0, 1, 1)] * 3
    assert steps[1].forward_place.line == line_of("past the wrapper", __file__)
    assert {each.backward_place.line for each in steps} == {line_of("backward", __file__)}


def test_forward_passes_through_the_wrapper_are_none_of_these(watched: Watched) -> None:
    """Also several before one backward pass, and an evaluation of the inner model in between."""
    model, optimizer = trained()
    for _ in range(3):
        (model(torch.ones(2, 4)).sum() + model(torch.zeros(2, 4)).sum()).backward()
        optimizer.step()
        with torch.no_grad():
            model.module(torch.ones(2, 4))

    steps = watched.of(ObservedStep)
    assert [(each.forwards, each.backwards, each.backwards_unwrapped) for each in steps] == [(2, 1, 0)] * 3


def test_flags_of_no_sync_are_those_of_each_forward_pass(watched: Watched) -> None:
    """DDP decides in forward whether the backward pass reduces."""
    model, optimizer = trained()
    for synchronized in (True, False, True):
        with contextlib.nullcontext() if synchronized else model.no_sync():
            loss = model(torch.ones(2, 4)).sum()
        loss.backward()
    optimizer.step()

    (step,) = watched.of(ObservedStep)
    assert step.synchronized == [True, False, True]


def test_the_wait_for_another_rank_is_told_from_a_ranks_own_backward_pass() -> None:
    """Rank 1 sleeps 100 ms in its own, and rank 0 waits for it; both passes take as long."""
    waits, sleeps = run_ranks(ranks.late_in_backward, 2)

    for (own_s, wait_s), (slow_s, late_wait_s) in zip(waits, sleeps, strict=True):
        assert own_s < 0.05
        assert wait_s > 0.05
        assert slow_s >= 0.1
        assert late_wait_s < 0.05


def test_a_clock_that_was_stopped_leaves_no_hook() -> None:
    """A graph may be used again."""
    loss = torch.ones(2, requires_grad=True).sum()
    stopped, running = BackwardClock([loss]), BackwardClock([loss])

    assert stopped.stop() is None
    loss.backward()

    assert stopped.stop() is None
    assert running.stop() is not None


def test_only_recorded_steps_are_timed(watched: Watched) -> None:
    """The others cost no clock."""
    model, optimizer = trained()
    for _ in range(60):
        model(torch.ones(2, 4)).sum().backward()
        recorded = watched.progress.recorded
        assert (watched.progress.window.backward_times is not None) == recorded
        optimizer.step()

    steps = watched.of(ObservedStep)
    assert all(each.backward_begun_s <= each.backward_done_s <= each.backward_ended_s for each in steps)


def test_a_backward_pass_whose_end_is_not_known_has_no_times(watched: Watched) -> None:
    """The loss is a parameter itself, and has no node; or a hook of the script raises."""
    model, optimizer = trained()
    model.module.first.bias.backward(torch.ones(4))
    optimizer.step()
    loss = model(torch.ones(2, 4)).sum()
    handle = model.module.second.bias.register_hook(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        loss.backward(retain_graph=True)
    handle.remove()
    optimizer.step()

    assert [each.backward_begun_s for each in watched.of(ObservedStep)] == [None, None]


def test_a_gradient_penalty_is_no_backward_pass(watched: Watched) -> None:
    """`autograd.grad` with respect to inputs trains nothing."""
    model, optimizer = trained()
    inputs = torch.ones(2, 4, requires_grad=True)
    out = model(inputs).sum()
    (slope,) = torch.autograd.grad(out, inputs, create_graph=True)
    (out + slope.square().sum()).backward()
    optimizer.step()

    (step,) = watched.of(ObservedStep)
    assert (step.backwards, step.backwards_unwrapped) == (1, 0)
    assert watched.of(GradientTaken) == []


def test_gradients_of_parameters_that_are_taken_by_hand_are_named(watched: Watched) -> None:
    """DDP does not synchronize them; three such lines are enough."""
    model, optimizer = trained()
    optimizer.step()
    for _ in range(5):
        torch.autograd.grad(model(torch.ones(2, 4)).sum(), list(model.parameters()))  # by hand

    seen = watched.of(GradientTaken)
    assert [(each.step, each.parameters) for each in seen] == [(2, 4)] * 3
    assert seen[0].place.line == line_of("by hand", __file__)


def test_backward_passes_within_a_backward_pass_are_not_counted(watched: Watched) -> None:
    """Reentrant checkpointing runs the engine again inside itself."""
    model, optimizer = trained()
    inputs = torch.ones(2, 4, requires_grad=True)
    with model.no_sync():
        checkpoint(model, inputs, use_reentrant=True).sum().backward()
    optimizer.step()

    (step,) = watched.of(ObservedStep)
    assert step.backwards == 1


def test_a_backward_pass_that_failed_does_not_hide_later_ones(watched: Watched) -> None:
    """A script may catch the error, as of memory that ran out, and go on with the next batch."""
    model, optimizer = trained()

    def fail(_):
        raise RuntimeError("no memory")

    with model.no_sync():
        out = model(torch.ones(2, 4))
    handle = out.register_hook(fail)
    with pytest.raises(RuntimeError, match="no memory"):
        out.sum().backward()
    handle.remove()
    optimizer.step()
    for _ in range(2):
        backward(model)
        optimizer.step()

    assert [each.backwards for each in watched.of(ObservedStep)] == [1, 1, 1]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_the_first_loss_that_is_no_finite_number_is_reported_once(watched: Watched, value: float) -> None:
    """With the step that it would lead to; the loss of that step is unknown."""
    model, optimizer = trained()
    for factor in (1.0, value, value):
        (model(torch.ones(2, 4)).square().sum() * factor).backward()  # not finite
        optimizer.zero_grad()
        optimizer.step()

    (seen,) = watched.of(NonFinite)
    assert (seen.what, seen.step, seen.place.line) == ("loss", 2, line_of("not finite", __file__))
    assert not math.isfinite(float(seen.value))
    losses = [each.loss for each in watched.of(ObservedStep)]
    assert losses[0] is not None
    assert losses[1:] == [None, None]


def test_losses_are_those_of_the_script(watched: Watched) -> None:
    """Of the last backward pass of each step."""
    model, optimizer = trained()
    expected = []
    for _ in range(3):
        backward(model)
        expected.append(backward(model, rows=3).item())
        optimizer.step()

    assert [each.loss for each in watched.of(ObservedStep)] == expected


def test_a_loss_at_a_step_that_is_not_recorded_is_reported_with_that_step(watched: Watched) -> None:
    """The next step carries it to all ranks, so a later one would name the wrong rank."""
    model, optimizer = trained()
    for step in range(1, 56):
        factor = math.nan if step == 53 else 1.0
        (model(torch.ones(2, 4)).square().sum() * factor).backward()
        optimizer.zero_grad()
        optimizer.step()

    (seen,) = watched.of(NonFinite)
    assert not is_recorded(53)
    assert seen.step == 53


def test_a_backward_pass_from_many_numbers_has_no_loss(watched: Watched) -> None:
    """At any step."""
    model, optimizer = trained()
    for step in range(1, 60):
        out = model(torch.ones(2, 4))
        if step in (2, 53):
            out.backward(torch.ones(2, 2))
        else:
            out.sum().backward()
        optimizer.step()

    losses = {each.step: each.loss for each in watched.of(ObservedStep)}
    assert [step for step, loss in losses.items() if loss is None] == [2]
    assert watched.session.failed == {}
