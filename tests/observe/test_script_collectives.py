"""Collectives of the script: which, on what, and from which line."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.optim import SGD

from paceline.observe.schedule import is_recorded
from paceline.records.observed import Collective, CollectivesCounted
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


def test_calls_are_numbered_within_their_group(watched: Watched) -> None:
    """Each group has numbers of its own, however its default is written; other groups do not confuse them."""
    part = dist.new_group([0])
    dist.all_reduce(torch.ones(3))
    dist.broadcast(torch.ones(2), group_src=0, group=part)
    dist.all_gather_object([None], 1, group=dist.group.WORLD)
    dist.all_gather([torch.ones(2)], torch.ones(2), part)

    seen = watched.of(Collective)
    names = {each.group for each in seen}
    assert len(names) == 2
    assert [(each.op, each.group == seen[0].group, each.number, each.root, each.equal_bytes) for each in seen] == [
        ("all_reduce", True, 1, None, 12),
        ("broadcast", False, 1, 0, 8),
        ("all_gather_object", True, 2, None, None),
        ("all_gather", False, 2, None, 8),
    ]
    assert {each.size for each in seen} == {1}


def test_collectives_of_ddp_count_among_those_before_a_call(watched: Watched) -> None:
    """One bucket a backward pass."""
    model = nn.parallel.DistributedDataParallel(nn.Linear(3, 1))
    for _ in range(3):
        model(torch.ones(2, 3)).sum().backward()
        dist.barrier()

    first, second, third = (each.before for each in watched.of(Collective))
    assert third - second == 2  # a bucket and a barrier
    assert second > first > 0


def test_after_a_send_only_calls_of_the_script_are_counted(watched: Watched) -> None:
    """Sends and receives need not be as many on each rank."""
    with pytest.raises(ValueError, match="destination"):
        dist.send(torch.ones(1), dst=0)
    dist.barrier()
    watched.ends()

    (seen,) = watched.of(Collective)
    assert (seen.number, seen.before) == (1, None)
    assert [(each.calls, each.issued) for each in watched.of(CollectivesCounted)] == [(1, None)]


def test_the_end_of_the_script_has_the_counts_of_each_group(watched: Watched) -> None:
    """Those of DDP for the default group."""
    part = dist.new_group([0])
    dist.barrier()
    dist.all_reduce(torch.ones(1), group=part)
    dist.all_reduce(torch.ones(1), group=part)
    watched.ends()

    assert [(each.size, each.calls, each.issued) for each in watched.of(CollectivesCounted)] == [
        (1, 1, 1),
        (1, 2, None),
    ]


def test_a_script_that_an_exception_ends_gives_no_counts(watched: Watched) -> None:
    """Its ranks stop at different calls, for a reason of its own."""
    dist.barrier()
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        watched.ends()

    assert watched.of(CollectivesCounted) == []


def test_a_call_that_raises_ends_the_numbers_of_its_group(watched: Watched) -> None:
    """The script may catch it on one rank only, and nobody knows whether it counts."""
    dist.barrier()
    with pytest.raises(TypeError):
        dist.all_reduce("no tensor")
    dist.barrier()
    watched.ends()

    assert [(each.op, each.number) for each in watched.of(Collective)] == [
        ("barrier", 1),
        ("all_reduce", 2),
        ("barrier", None),
    ]
    assert watched.of(CollectivesCounted) == []


def test_collectives_of_a_thread_do_not_hide_those_of_another(watched: Watched) -> None:
    """A checkpoint may be written by a thread with a group of its own while the script goes on."""
    inside, go_on = threading.Event(), threading.Event()

    class Slow:
        def __reduce__(self):
            inside.set()
            go_on.wait(10)
            return (int, ())

    thread = threading.Thread(target=dist.all_gather_object, args=([None], Slow(), dist.new_group([0])))
    thread.start()
    assert inside.wait(10)
    dist.barrier()
    go_on.set()
    thread.join()

    assert [each.op for each in watched.of(Collective)] == ["all_gather_object", "barrier"]
