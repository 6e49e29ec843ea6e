"""The step clock counts what a script does between two steps of its optimizers, and rounds of several as one step."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Adam, Optimizer

from paceline.observe.schedule import is_recorded
from paceline.records.observed import Fingerprint, StepTiming
from paceline.records.observed_rank import ObservedStep, OptimizerSeen
from tests.observe.watched import Watched, backward, line_of, watching


class Outer(Optimizer):
    """Takes its step by means of another optimizer, as Lookahead and SAM do."""

    def __init__(self, inner: Optimizer) -> None:
        self.inner = inner
        super().__init__(inner.param_groups, {})

    def step(self, closure=None):
        """The inner one, twice."""
        self.inner.step()
        self.inner.step()


class Failing(SGD):
    """Raises an exception while `fails`."""

    fails = False

    def step(self, closure=None):
        """Or not."""
        if self.fails:
            raise RuntimeError("no step today")
        return super().step(closure)


def test_counts_of_a_step_are_those_of_the_loop(group: None, watched: Watched) -> None:
    """Three micro-batches with one reduction, by hand: two forwards within no_sync, one without."""
    model = DistributedDataParallel(nn.Linear(4, 2))
    optimizer = SGD(model.parameters(), lr=0.25)
    for _ in range(3):
        for micro in range(3):
            with model.no_sync() if micro < 2 else contextlib.nullcontext():
                loss = backward(model)
        optimizer.step()  # the step
        optimizer.zero_grad()

    steps = watched.of(ObservedStep)
    assert [each.step for each in steps] == [1, 2, 3]
    for step in steps:
        assert step.optimizer == 0
        assert step.lr == [0.25]
        assert (step.forwards, step.backwards, step.backwards_unwrapped) == (3, 3, 0)
        assert step.synchronized == [False, False, True]
        assert (step.clips, step.scheduler_steps, step.own_reductions, step.own_averages) == (0, 0, 0, 0)
        assert step.step_place.line == line_of("the step", __file__)
    assert steps[2].loss == pytest.approx(loss.item())
    assert steps[2].reductions == 1  # DDP has one bucket, and agrees on buckets before


def test_two_optimizers_of_a_gan_share_a_step(watched: Watched) -> None:
    """Each of the two steps once a round, so three rounds are three steps."""
    first, second = SGD(nn.Linear(4, 2).parameters(), 0.1), Adam(nn.Linear(4, 2).parameters(), 0.2)
    for _ in range(3):
        first.step()
        second.step()

    assert watched.progress.step == 3
    assert [(each.step, each.optimizer) for each in watched.of(ObservedStep)] == [
        (step, optimizer) for step in (1, 2, 3) for optimizer in (0, 1)
    ]


def test_an_optimizer_that_steps_more_often_than_the_other_sets_the_pace(watched: Watched) -> None:
    """Five steps of a critic for one of a generator are five steps."""
    critic, generator = SGD(nn.Linear(4, 2).parameters(), 0.1), SGD(nn.Linear(4, 2).parameters(), 0.1)
    for _ in range(4):
        for _ in range(5):
            critic.step()
        generator.step()

    assert watched.progress.step == 20


def test_an_optimizer_inside_another_is_not_counted(watched: Watched) -> None:
    """The step is that of the one which the script calls."""
    outer = Outer(SGD(nn.Linear(4, 2).parameters(), 0.1))
    for _ in range(3):
        outer.step()

    assert watched.progress.step == 3
    assert [each.kind for each in watched.of(OptimizerSeen)] == ["Outer"] * 2


def test_a_class_that_calls_the_step_of_its_base_counts_once(watched: Watched) -> None:
    """Torch calls its hooks for both once an optimizer of the base class was made as well."""
    SGD(nn.Linear(4, 2).parameters(), 0.1)
    optimizer = Failing(nn.Linear(4, 2).parameters(), 0.1)
    for _ in range(3):
        optimizer.step()

    assert watched.progress.step == 3
    assert [each.step for each in watched.of(ObservedStep)] == [1, 2, 3]


def test_a_step_that_raised_an_exception_is_none_and_the_next_one_counts(watched: Watched) -> None:
    """A script may catch it and go on."""
    optimizer, other = Failing(nn.Linear(4, 2).parameters(), 0.1), Adam(nn.Linear(4, 2).parameters(), 0.1)
    for _ in range(3):
        optimizer.step()
        other.step()
    optimizer.fails = True
    with pytest.raises(RuntimeError, match="no step today"):
        optimizer.step()
    other.step()
    optimizer.fails = False
    optimizer.step()
    other.step()

    steps = [(each.step, each.optimizer) for each in watched.of(ObservedStep)]
    # The step that raised had begun: it is written down, and so is the next one under the same number.
    assert steps[6:] == [(4, 0), (4, 1), (4, 0), (5, 1)]
    assert watched.progress.step == 5


def test_without_an_optimizer_of_torch_a_step_ends_when_the_next_forward_pass_begins(
    group: None, watched: Watched
) -> None:
    """Updates by hand; each backward pass with a forward pass behind it is a step."""
    model = DistributedDataParallel(nn.Linear(4, 2))
    for _ in range(4):
        backward(model)
        with torch.no_grad():
            for each in model.parameters():
                each -= 0.1 * each.grad
                each.grad = None
    model(torch.ones(2, 4))

    steps = watched.of(ObservedStep)
    assert [(each.step, each.optimizer, each.backwards) for each in steps] == [(step, -1, 1) for step in (1, 2, 3, 4)]
    assert watched.progress.step == 4


def test_steps_before_the_first_model_is_wrapped_are_counted_anew(group: None, watched: Watched) -> None:
    """A warm-up on one rank would otherwise shift the steps of this rank against those of others."""
    model = nn.Linear(4, 2)
    warm_up = SGD(model.parameters(), 0.1)
    for _ in range(7):
        warm_up.step()
    wrapped = DistributedDataParallel(model)
    optimizer = SGD(wrapped.parameters(), 0.1)
    for _ in range(2):
        backward(wrapped)
        optimizer.step()

    assert watched.progress.step == 2
    assert [(each.step, each.optimizer) for each in watched.of(ObservedStep)][7:] == [(1, 0), (2, 0)]
    assert [each.moment for each in watched.of(Fingerprint)].count("start") == 2


def test_an_optimizer_says_what_it_holds_and_what_nobody_synchronizes(group: None, watched: Watched) -> None:
    """A wrapped layer of two parameters, a loose parameter, and one layer of the wrapped model that is left out."""
    inner = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    model, loose = DistributedDataParallel(inner), nn.Parameter(torch.zeros(1))
    optimizer = SGD([*inner[0].parameters(), loose], 0.1)
    backward(model)
    optimizer.step()

    (seen,) = watched.of(OptimizerSeen)
    assert (seen.parameters, seen.wrapped, seen.without_gradient) == (3, 2, 1)
    assert seen.outside == ["SGD/2"]
    assert seen.wrapped_with_gradient_elsewhere == ["1.weight", "1.bias"]


def test_parameters_of_an_unwrapped_model_have_its_name(watched: Watched) -> None:
    """Found through the objects of the process; a module whose constructor never ran does not get in the way."""
    unready = nn.Linear.__new__(nn.Linear)
    model = nn.Sequential(nn.Linear(4, 2))
    SGD(model.parameters(), 0.1).step()

    (seen,) = watched.of(OptimizerSeen)
    assert seen.outside == ["Sequential/0.weight", "Sequential/0.bias"]
    del unready


def test_later_steps_are_recorded_by_the_schedule_and_when_their_pattern_changes(watched: Watched) -> None:
    """Step 53 is not in the schedule, but has two backward passes where all others have one."""
    model = nn.Linear(4, 2)
    optimizer = SGD(model.parameters(), 0.0)
    for step in range(1, 61):
        for _ in range(2 if step == 53 else 1):
            backward(model)
        optimizer.step()

    recorded = [each.step for each in watched.of(ObservedStep)]
    assert not is_recorded(53)
    assert recorded == sorted({step for step in range(1, 61) if is_recorded(step)} | {53})
    assert [each.step for each in watched.of(StepTiming)] == [step for step in range(1, 61) if is_recorded(step)]


def test_norms_are_those_of_the_gradients_at_steps_with_digests(group: None, watched: Watched) -> None:
    """Doubled by the script between the backward pass and the step; the reference is the norm of all elements."""
    model = DistributedDataParallel(nn.Linear(4, 2))
    optimizer = SGD(model.parameters(), 0.1)
    for _ in range(4):
        optimizer.zero_grad()
        backward(model)
        norm = torch.cat([each.grad.flatten() for each in model.parameters()]).norm().item()
        for each in model.parameters():
            each.grad *= 2
        optimizer.step()
        seen = watched.of(ObservedStep)[-1]
        if seen.step in (1, 2, 3):
            assert seen.norm_after_backward == pytest.approx(norm)
            assert seen.norm_at_step == pytest.approx(2 * norm)
            assert not seen.norm_before_clip
        else:
            assert (seen.norm_after_backward, seen.norm_at_step) == (None, None)


def test_one_process_without_a_group_counts_no_reductions() -> None:
    """That is unknown, and not zero."""
    with watching() as watched:
        SGD(nn.Linear(4, 2).parameters(), 0.1).step()

    assert watched.of(ObservedStep)[0].reductions is None
