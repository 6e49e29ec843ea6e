"""Collectives of the script: which, on what, and from which line."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.optim import SGD

from paceline.observe.schedule import is_recorded
from paceline.records.observed import Collective
from paceline.records.observed_rank import ObservedStep
from paceline.records.ring import ENTERED, LEFT
from tests.observe.watched import Watched, backward, line_of

pytestmark = pytest.mark.usefixtures("group")


def test_collectives_are_seen_with_their_size_and_their_line(watched: Watched) -> None:
    """Under both names that functions have; those that others are made of do not count."""
    dist.all_reduce(torch.ones(3, dtype=torch.float64))  # reduced
    dist.distributed_c10d.broadcast(torch.ones(5), src=0)
    dist.all_gather([torch.zeros(2)], torch.ones(2))
    dist.barrier()
    dist.all_gather_object([None], {"accuracy": 1})

    seen = watched.of(Collective)
    assert [(each.op, each.bytes, each.dtype, each.on) for each in seen] == [
        ("all_reduce", 24, "float64", "other"),
        ("broadcast", 20, "float32", "other"),
        ("all_gather", 16, "float32", "other"),
        ("barrier", 0, "", ""),
        ("all_gather_object", 0, "", ""),
    ]
    assert seen[0].place.line == line_of("reduced", __file__)
    assert [each.seq for each in seen] == [1, 2, 3, 4, 5]  # all that the process called count on


def test_a_rank_counts_the_collectives_that_it_enters_and_leaves(watched: Watched) -> None:
    """So that a launcher knows that it is in one, also one that raises an exception."""
    counters = watched.sink.counters
    dist.all_reduce(torch.ones(3))
    assert (counters[ENTERED], counters[LEFT]) == (1, 1)

    with pytest.raises(TypeError):
        dist.all_reduce("no tensor")
    assert (counters[ENTERED], counters[LEFT]) == (2, 2)

    dist.all_gather_object([None], within := Reads(counters))
    assert within.seen == [(3, 2)]
    assert counters[ENTERED] <= counters[LEFT]


class Reads:
    """Notes the counters while it is sent."""

    def __init__(self, counters: list[int]) -> None:
        self.counters, self.seen = counters, []

    def __reduce__(self) -> tuple[type, tuple[()]]:
        self.seen.append((self.counters[ENTERED], self.counters[LEFT]))
        return object, ()


def test_what_is_reduced_is_told_apart_by_its_memory(watched: Watched) -> None:
    """Gradients, parameters (also their `.data`), and copies of either, which are something else."""
    model = nn.Linear(4, 2)
    optimizer = SGD(model.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        backward(model)
        for each in model.parameters():
            dist.all_reduce(each.grad)  # gradients
        optimizer.step()
        dist.all_reduce(model.weight.data)
        dist.all_reduce(model.weight.detach().clone())
        dist.broadcast(model.bias.data, src=0)

    seen = [(each.step, each.op, each.on) for each in watched.of(Collective)]
    assert seen[-5:] == [
        (1, "all_reduce", "gradients"),
        (1, "all_reduce", "gradients"),
        (2, "all_reduce", "parameters"),
        (2, "all_reduce", "other"),
        (2, "broadcast", "parameters"),
    ]
    second = watched.of(ObservedStep)[1]
    assert (second.own_reductions, second.own_averages) == (2, 1)
    assert second.reduce_place.line == line_of("gradients", __file__)


def test_collectives_that_raise_do_not_hide_later_ones(watched: Watched) -> None:
    """A script may catch what a wrong argument raises."""
    with pytest.raises(ValueError, match="not initialized"):
        dist.all_reduce(torch.ones(1), group=object())
    dist.all_reduce(torch.ones(1))

    assert [each.op for each in watched.of(Collective)] == ["all_reduce"] * 2


def test_a_line_that_is_called_ever_again_is_written_down_ever_more_rarely(watched: Watched) -> None:
    """As steps are; every call counts."""
    for _ in range(120):
        dist.barrier()

    assert [each.seq for each in watched.of(Collective)] == [each for each in range(1, 121) if is_recorded(each)]
