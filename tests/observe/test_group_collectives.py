"""The probe of process groups sees every collective, says where it came from, and changes nothing."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch

from paceline.observe.probes.group_collectives import GroupCollectives
from paceline.observe.session import Session
from paceline.observe.sinks import MemorySink
from paceline.pool.warm_ranks import run_ranks
from paceline.records.observed import Collective, CollectiveDone, NotObserved
from paceline.records.reader import EventStream
from tests.observe import ranks

pytestmark = pytest.mark.skipif(bool(GroupCollectives.missing()), reason="torch 2.14 and newer tell of collectives")


@pytest.mark.parametrize("world", [1, 2, 3])
def test_weights_have_the_same_bits_watched_and_not(world: int) -> None:
    """A DDP communication hook would change them at three ranks; this does not."""
    alone = run_ranks(ranks.trained, world, False)
    watched = run_ranks(ranks.trained, world, True)

    assert watched == alone


def test_calls_are_told_in_order_with_bytes_group_and_line(tmp_path: Path) -> None:
    """Explicit ones and those of DDP, whose construction and backward stand at their own lines."""
    (calls, done, failed), (others, _, _) = run_ranks(ranks.some_calls, 2, str(tmp_path))
    source, first = inspect.getsourcelines(ranks.some_calls)
    line_of = {
        word: first + next(i for i, text in enumerate(source) if word in text)
        for word in (
            "DistributedDataParallel(",
            ".backward()",
            "group=group",
            "async_op",
            "dist.send",
            "dist.broadcast",
        )
    }

    assert failed == {}
    backward = [call for call in calls if call.by_backward]
    assert [(call.op, call.bytes, call.dtype) for call in backward] == [("all_reduce", 24, "float32")]
    assert backward[0].place.line == line_of[".backward()"]
    assert any(call.op == "broadcast" and call.place.line == line_of["DistributedDataParallel("] for call in calls)
    tail = [(call.op, call.bytes, call.dtype, call.root, call.place.line) for call in calls[-4:]]
    assert tail == [
        ("all_reduce", 40, "float64", None, line_of["group=group"]),
        ("all_reduce", 28, "float32", None, line_of["async_op"]),
        ("send", 8, "float32", 1, line_of["dist.send"]),
        ("broadcast", 24, "int64", 1, line_of["dist.broadcast"]),
    ]
    assert calls[-4].group != calls[-3].group
    assert [call.seq for call in calls] == list(range(1, len(calls) + 1))
    assert set(done) == {call.seq for call in calls if call.op != "send"}
    assert [call.op for call in others[-2:]] == ["recv", "broadcast"]


def test_the_file_holds_what_the_memory_holds(tmp_path: Path) -> None:
    """Each call is written as it is issued, and again when it is done."""
    (calls, done, _), _ = run_ranks(ranks.some_calls, 2, str(tmp_path))

    events = list(EventStream(tmp_path / "rank-0.jsonl"))
    assert [event for event in events if isinstance(event, Collective)] == calls
    assert sorted(event.seq for event in events if isinstance(event, CollectiveDone)) == done


def test_trouble_in_the_observer_is_kept_from_the_program() -> None:
    """Whatever a probe raises ends its watching and nothing else."""
    assert run_ranks(ranks.reduced_beside_a_broken_probe, 2) == [(2.0, ["KeyError: 'numel'"])] * 2


def test_a_torch_without_hooks_is_reported_with_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not observed is said; nothing is guessed."""
    monkeypatch.setattr(GroupCollectives, "requires", ((Session, "register_pre_hook"),))
    sink = MemorySink()

    with Session(sink, [GroupCollectives()]) as session:
        pass

    assert session.armed == []
    (event,) = sink.of(NotObserved)
    assert f"torch {torch.__version__} has no register_pre_hook" in event.why
