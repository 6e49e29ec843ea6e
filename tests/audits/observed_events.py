"""Events of observed ranks, written down, and a judge that checks that their order between ranks does not matter."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, zip_longest
from typing import Any

import msgspec

from paceline.audits.audit import Audit
from paceline.audits.run_state import RunState
from paceline.records.event import Event
from paceline.records.observed import Collective, Fingerprint
from paceline.records.observed_rank import (
    GroupMade,
    LoaderBegun,
    LoaderEnded,
    ModelWrapped,
    ObservedStep,
    OptimizerSeen,
    RankStarted,
    ScriptEnded,
)
from paceline.records.place import Place
from paceline.records.schema import Finding

NAMES = ("fc1.weight", "fc1.bias", "fc2.weight")
Ranks = dict[int, list[Event]]


def at(line: int, path: str = "train.py") -> Place:
    """A line of the script."""
    return Place(path=path, line=line, function="main")


def started(rank: int, world: int = 2) -> RankStarted:
    """A rank's first event."""
    return RankStarted(
        rank=rank,
        local_rank=rank,
        world=world,
        pid=70 + rank,
        host="node",
        started_unix_s=0.0,
        script="train.py",
        directory="/work",
        versions={"torch": "2.14.1"},
        threads=1,
    )


def group(rank: int, world: int = 2) -> GroupMade:
    """The default process group."""
    return GroupMade(rank=rank, world=world, backend="gloo", place=at(5))


def wrapped(number: int = 0, *, size: int = 0, **other: Any) -> ModelWrapped:
    """A model in DDP; `job` puts in its own size where none is given."""
    fields: dict[str, Any] = {
        "wrapper": "DistributedDataParallel",
        "model": "Net",
        "step": 0,
        "parameters": 3,
        "order": "abc",
        "first_names": list(NAMES),
        "options": {"broadcast_buffers": True, "find_unused_parameters": False, "static_graph": False},
        "layers": {},
        "place": at(10),
    }
    return ModelWrapped(number=number, group=size, **(fields | other))


def step(number: int, **other: Any) -> ObservedStep:
    """A step as a plain DDP loop makes it."""
    fields: dict[str, Any] = {
        "optimizer": 0,
        "lr": [0.1],
        "forwards": 1,
        "synchronized": [True] * other.get("forwards", 1),
        "backwards": 1,
        "backwards_unwrapped": 0,
        "reductions": 1,
        "own_reductions": 0,
        "forward_place": at(20),
        "backward_place": at(21),
        "step_place": at(22),
    }
    return ObservedStep(step=number, **(fields | other))


def unwrapped(number: int, **other: Any) -> ObservedStep:
    """A step without any wrapped forward pass."""
    fields = {"forwards": 0, "synchronized": [], "backwards_unwrapped": 1, "reductions": 0}
    return step(number, **(fields | other))


def optimizer(number: int = 0, **other: Any) -> OptimizerSeen:
    """An optimizer with all parameters of the wrapped model."""
    fields: dict[str, Any] = {
        "kind": "SGD",
        "step": 0,
        "parameters": 3,
        "wrapped": 3,
        "outside": [],
        "without_gradient": 0,
        "place": at(22),
    }
    return OptimizerSeen(number=number, **(fields | other))


def ended(steps: int, **other: Any) -> ScriptEnded:
    """The last event of a rank that ends in order."""
    fields: dict[str, Any] = {"scheduler_steps": 0, "observer_s": 0.0, "elapsed_s": 1.0}
    return ScriptEnded(step=steps, **(fields | other))


def fingerprint(
    rank: int,
    number: int,
    moment: str,
    differ: Iterable[str] = (),
    *,
    kind: str = "parameter",
    more: Iterable[str] = (),
) -> Fingerprint:
    """Digests after a step.

    Args:
        rank: of which.
        number: the step.
        moment: as in the event.
        differ: names whose digests are those of the rank alone; such names that are no parameters are added.
        kind: `parameter`, `gradient`, ...
        more: further names, equal on all ranks.
    """
    differing = set(differ)
    names = dict.fromkeys(chain(NAMES if kind in ("parameter", "gradient") else (), more, differ))
    digests = {f"{kind}:{name}": f"r{rank}" if name in differing and rank else "same" for name in names}
    return Fingerprint(rank=rank, step=number, moment=moment, digests=digests)


def states(
    rank: int, steps: Iterable[int], differ: Iterable[str] = (), *, since: int = 1, **other: Any
) -> list[Fingerprint]:
    """Parameters after steps; some differ from a step on."""
    return [fingerprint(rank, number, "state", differ if number >= since else (), **other) for number in steps]


def begun(loader: int = 1, **other: Any) -> LoaderBegun:
    """A pass over a loader begins."""
    fields: dict[str, Any] = {
        "number": 0,
        "step": 0,
        "dataset": "Digits",
        "data": loader,
        "samples": 100,
        "root_samples": 100,
        "iterable": False,
        "batch_size": 10,
        "sampler": "SequentialSampler",
        "sampler_facts": {},
        "place": at(30),
    }
    return LoaderBegun(loader=loader, **(fields | other))


def loader_ended(loader: int = 1, **other: Any) -> LoaderEnded:
    """A pass over an evaluation loader ends."""
    fields: dict[str, Any] = {
        "number": 0,
        "step": 0,
        "batches": 10,
        "samples": 100,
        "exhausted": True,
        "backwards": 0,
    }
    return LoaderEnded(loader=loader, **(fields | other))


def collective(op: str = "all_reduce", **other: Any) -> Collective:
    """A collective that the script calls itself."""
    return Collective(**({"seq": 1, "op": op, "bytes": 4, "place": at(40)} | other))


def job(make: Callable[[int], Iterable[Event]], world: int = 2) -> Ranks:
    """Each rank's events, after its start and its process group."""
    return {
        rank: [started(rank, world), group(rank, world), *(_in_group(event, world) for event in make(rank))]
        for rank in range(world)
    }


def found(kind: type[Audit], ranks: Ranks) -> list[Finding]:
    """What an audit finds, whichever way the ranks' events are mixed."""
    one_after_the_other = [(rank, event) for rank, events in ranks.items() for event in events]
    rows = zip_longest(*ranks.values())
    interleaved = [(rank, event) for row in rows for rank, event in zip(ranks, row, strict=True) if event is not None]
    backwards = [(rank, event) for rank in reversed(ranks) for event in ranks[rank]]
    first, *others = (_judged(kind, order) for order in (one_after_the_other, interleaved, backwards))
    assert all(each == first for each in others), "the order between ranks must not matter"
    return first


def without(ranks: Ranks, rank: int) -> Ranks:
    """The same job, of which one rank wrote nothing."""
    return {each: events for each, events in ranks.items() if each != rank}


def _in_group(event: Event, world: int) -> Event:
    whole = isinstance(event, ModelWrapped) and not event.group
    return msgspec.structs.replace(event, group=world) if whole else event


def _judged(kind: type[Audit], events: Iterable[tuple[int, Event]]) -> list[Finding]:
    run = RunState()
    audit = kind(run)
    for rank, event in events:
        run.feed(rank, event)
        audit.feed(rank, event)
        audit.findings()
        audit.looked_at()
    return audit.findings()
