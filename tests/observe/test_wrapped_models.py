"""Models in DDP: what was registered, in which order, and what their forward passes are given."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

from paceline.records.observed import Fingerprint, NotObserved
from paceline.records.observed_rank import InputSeen, ModelWrapped, TrainableChanged
from tests.observe.watched import Watched, backward, line_of

pytestmark = pytest.mark.usefixtures("group")


class Pair(nn.Module):
    """Two layers, registered in one order or the other; forward is the same."""

    def __init__(self, swapped: bool = False) -> None:
        super().__init__()
        for name in ("second", "first") if swapped else ("first", "second"):
            setattr(self, name, nn.Linear(4, 4))

    def forward(self, x):
        """One behind the other."""
        return self.second(self.first(x))


def test_a_wrapped_model_is_described(watched: Watched) -> None:
    """A frozen layer is not synchronized; batch norm without statistics and dropout of nothing do not count."""
    model = nn.Sequential(
        nn.Linear(4, 4),
        nn.BatchNorm1d(4),
        nn.BatchNorm1d(4, track_running_stats=False),
        nn.Dropout(0.5),
        nn.Dropout(0.0),
        nn.Linear(4, 2).requires_grad_(False),
    )
    DistributedDataParallel(model, static_graph=True)  # wrapped here

    (seen,) = watched.of(ModelWrapped)
    assert (seen.number, seen.wrapper, seen.model, seen.group) == (0, "DistributedDataParallel", "Sequential", 1)
    assert seen.parameters == sum(each.requires_grad for each in model.parameters()) == 6
    assert seen.first_names == [name for name, _ in model.named_parameters()]
    assert seen.layers == {"batch_norm": 1, "sync_batch_norm": 0, "dropout": 1}
    assert seen.options == {"broadcast_buffers": True, "find_unused_parameters": False, "static_graph": True}
    assert seen.place.line == line_of("wrapped here", __file__)


def test_equal_models_have_the_same_order_and_swapped_ones_another(watched: Watched) -> None:
    """Whatever their weights are. DDP pairs parameters by their order, so the digest tells who is paired wrongly."""
    for model in (Pair(), Pair(), Pair(swapped=True), Pair().double()):
        DistributedDataParallel(model)

    first, second, swapped, double = (each.order for each in watched.of(ModelWrapped))
    assert first == second
    assert len({first, swapped, double}) == 3


def test_a_deep_copy_is_another_wrapped_model(watched: Watched) -> None:
    """With its own number and its own parameters."""
    wrapped = DistributedDataParallel(Pair())
    twin = copy.deepcopy(wrapped)
    for model in (wrapped, twin):
        backward(model)

    assert [(each.number, each.parameters) for each in watched.of(ModelWrapped)] == [(0, 4), (1, 4)]
    assert [each.wrapper for each in watched.of(InputSeen)] == [0, 1]


def test_a_wrapper_that_the_script_drops_is_not_kept_alive(watched: Watched) -> None:
    """Its memory is the script's."""
    model = DistributedDataParallel(Pair())
    backward(model)
    alive = [each() for each in (found.wrapper for found in watched.session.probes[1]._models._wrapped)]
    assert alive == [model]
    del alive, model

    assert list(watched.session.probes[1]._models.wrapped()) == []


def test_forward_passes_say_what_they_are_given(watched: Watched) -> None:
    """Equal inputs have equal digests; one element more or less makes another; constants have none."""
    model = DistributedDataParallel(nn.Linear(4, 2))
    optimizer = SGD(model.parameters(), 0.1)
    batch = torch.arange(12.0).view(3, 4)
    changed = batch.clone()
    changed[2, 3] += 1
    for given in (batch, batch.clone(), changed, torch.ones(3, 4), batch[:2]):
        model(given).sum().backward()
        optimizer.step()

    seen = watched.of(InputSeen)
    assert [(each.step, each.forward, each.rows, each.shape) for each in seen] == [
        (step, 0, rows, [rows, 4]) for step, rows in ((1, 3), (2, 3), (3, 3), (4, 3), (5, 2))
    ]
    assert seen[0].digest == seen[1].digest
    assert len({each.digest for each in seen}) == 4
    assert seen[3].digest == ""


def test_forward_passes_without_gradients_are_not_those_of_training(watched: Watched) -> None:
    """They are counted apart, for the passes over loaders."""
    model = DistributedDataParallel(nn.Linear(4, 2))
    with torch.no_grad():
        model(torch.ones(2, 4))

    assert watched.progress.wrapped_forwards == 1
    assert watched.progress.window.synchronized == ()
    assert watched.of(InputSeen) == []


def test_parameters_that_are_thawed_or_frozen_after_wrapping_are_named_once(watched: Watched) -> None:
    """DDP registered what required gradients when it was made."""
    model = Pair()
    model.first.requires_grad_(False)
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = SGD(wrapped.parameters(), 0.1)
    backward(wrapped)
    optimizer.step()
    model.first.requires_grad_(True)
    model.second.bias.requires_grad_(False)
    for _ in range(2):
        backward(wrapped)
        optimizer.step()

    (seen,) = watched.of(TrainableChanged)
    assert (seen.number, seen.step) == (0, 1)
    assert seen.added == ["first.weight", "first.bias"]
    assert seen.removed == ["second.bias"]


def test_state_is_not_compared_while_ranks_may_take_different_numbers_of_steps(watched: Watched) -> None:
    """Within Join; that is said once, and digests come again behind it."""
    model = DistributedDataParallel(nn.Linear(4, 2))
    optimizer = SGD(model.parameters(), 0.1)
    with Join([model]):
        for _ in range(3):
            backward(model)
            optimizer.step()
        inside = len(watched.of(Fingerprint))
    backward(model)

    assert inside == 0
    (missing,) = watched.of(NotObserved)
    assert missing.what == "state of ranks at equal steps"
    assert [(each.step, each.moment) for each in watched.of(Fingerprint)] == [(3, "state")]
