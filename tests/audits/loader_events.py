"""Events of observed ranks, as probes write them, for tests of audits of data, evaluation and files."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

from paceline.audits.audit import Audit
from paceline.audits.run_state import RunState
from paceline.records.event import Event
from paceline.records.observed import Collective, Fingerprint
from paceline.records.observed_rank import (
    FileTouched,
    InputSeen,
    LedgerBatch,
    LoaderBegun,
    LoaderEnded,
    ModelWrapped,
    ObservedStep,
    RankStarted,
    ScriptEnded,
)
from paceline.records.place import Place
from paceline.records.schema import Finding

TRAIN, EVALUATE, SAVE = (Place(path="train.py", line=line) for line in (30, 50, 70))


def started(rank: int, world: int, **more: Any) -> RankStarted:
    """The first event of a rank."""
    facts = {"pid": 1000 + rank, "host": "one", "started_unix_s": 0.0, "script": "train.py", "directory": "/job"}
    return RankStarted(rank=rank, local_rank=rank, world=world, versions={}, threads=1, **(facts | more))


def wrapped(group: int, **more: Any) -> ModelWrapped:
    """A model in DDP."""
    facts = {"number": 0, "wrapper": "DistributedDataParallel", "model": "Net", "step": 0, "parameters": 4}
    rest = {"order": "o", "first_names": ["fc1.weight"], "options": {}, "layers": {}}
    return ModelWrapped(group=group, **(facts | rest | more))


def facts(rank: int, world: int, **more: Any) -> dict[str, Any]:
    """Of a DistributedSampler."""
    given = {"num_replicas": world, "rank": rank, "shuffle": True, "seed": 0, "epoch": 0, "drop_last": False}
    return given | more


def begun(**more: Any) -> LoaderBegun:
    """A pass over a loader of 24 samples in batches of 4."""
    given = {"loader": 0, "number": 0, "step": 0, "dataset": "TensorDataset", "data": 0, "samples": 24}
    rest = {"root_samples": 24, "iterable": False, "batch_size": 4, "sampler": "RandomSampler", "sampler_facts": {}}
    return LoaderBegun(**(given | rest | {"content": "c", "place": TRAIN} | more))


def read(batches: Sequence[list[int]] | None, *, training: bool = True, end: bool = True, **more: Any) -> list[Event]:
    """A pass with its ledger; training sees each batch as an input of the next step.

    Args:
        batches: indices; None where the loop received six batches without any.
        training: with backward passes.
        end: whether it ends; False for a rank that was killed in it.
        more: fields of LoaderBegun; of the rest `exhausted`, `recorded`, `rows`, `inputs` (digests), `with_gradients`.
    """
    with_gradients = more.pop("with_gradients", True)
    exhausted, recorded = more.pop("exhausted", True), more.pop("recorded", batches is not None)
    rows, inputs = more.pop("rows", None), more.pop("inputs", None)
    first = begun(**({"place": TRAIN if training else EVALUATE} | more))
    flat = list(itertools.chain(*batches)) if batches is not None else []
    count = len(batches) if batches is not None else 6
    events: list[Event] = [first]
    for batch in range(count):
        indices = batches[batch] if batches is not None else []
        if recorded:
            events.append(LedgerBatch(loader=first.loader, number=first.number, batch=batch, indices=indices))
        if training:
            digest = inputs[batch] if inputs else str(indices)
            size = rows or (len(indices) or 4)
            events.append(
                seen(first.step + batch + 1, digest, size, loader=first.loader, number=first.number, batch=batch)
            )
    if end:
        events.append(
            LoaderEnded(
                loader=first.loader,
                number=first.number,
                step=first.step + (count if training else 0),
                batches=count,
                samples=len(flat) if batches is not None else count * 4,
                exhausted=exhausted,
                backwards=count if training else 0,
                with_gradients=with_gradients,
                order=str(flat) if batches is not None else None,
                increasing=bool(flat) and flat == sorted(flat),
                recorded=recorded,
            )
        )
    return events


def seen(step: int, digest: str, rows: int = 4, *, forward: int = 0, wrapper: int = 0, **more: Any) -> InputSeen:
    """What a model was given."""
    shape = more.pop("shape", [rows, 3])
    return InputSeen(step=step, forward=forward, rows=rows, shape=shape, digest=digest, wrapper=wrapper, **more)


def shuffled(seed: int, samples: int = 24, batch: int = 4) -> list[list[int]]:
    """All samples in batches."""
    order = random.Random(seed).sample(range(samples), samples)
    return batches_of(order, batch)


def batches_of(order: Sequence[int], batch: int = 4) -> list[list[int]]:
    """Indices in batches."""
    return [list(order[start : start + batch]) for start in range(0, len(order), batch)]


def sharded(
    rank: int, world: int, seed: int | None = 0, samples: int = 24, batch: int = 4, epoch: int = 0
) -> list[list[int]]:
    """What a DistributedSampler gives a rank: padded, and shuffled unless the seed is None."""
    order = list(range(samples)) if seed is None else random.Random(seed + epoch).sample(range(samples), samples)
    return batches_of((order + order[: -samples % world])[rank::world], batch)


def stepped(step: int, **more: Any) -> ObservedStep:
    """An optimizer step."""
    given = {"optimizer": 0, "lr": [0.1], "forwards": 1, "synchronized": [True], "backwards": 1}
    rest = {"backwards_unwrapped": 0, "reductions": None, "own_reductions": 0}
    return ObservedStep(step=step, **(given | rest | more))


def called(op: str, size_bytes: int, **more: Any) -> Collective:
    """A collective that the script calls itself."""
    return Collective(seq=1, op=op, bytes=size_bytes, **more)


def touched(path: str, mode: str = "write", *, step: int = 0, collectives: int = 0, **more: Any) -> FileTouched:
    """A file that the script opens."""
    given = {"by": "open", "place": SAVE} | more
    return FileTouched(path=path, mode=mode, step=step, collectives=collectives, **given)


def drawn(step: int, **states: str) -> Fingerprint:
    """Random states after a step."""
    digests = {f"random:{name}": state for name, state in states.items()}
    return Fingerprint(rank=0, step=step, digests=digests, moment="state")


def done(step: int = 100) -> ScriptEnded:
    """The rank left in order."""
    return ScriptEnded(step=step, scheduler_steps=0, observer_s=0.0, elapsed_s=1.0)


def judged(
    kind: type[Audit],
    ranks: Sequence[Sequence[Event]],
    *,
    world: int | None = None,
    group: int | None = None,
    hosts: Sequence[str] = (),
    layers: dict[str, int] | None = None,
    **of_start: Any,
) -> list[Finding]:
    """Findings of an audit, the same in whatever order ranks are fed.

    Args:
        kind: of audit.
        ranks: events of each rank; the start and a wrapped model are put before them.
        world: of the job, where not every rank wrote something.
        group: of the wrapped model; 0 for no model.
        hosts: of the ranks; one machine by default.
        layers: of the wrapped model.
        of_start: other fields of RankStarted.
    """
    count = world or len(ranks)
    whole = []
    for rank, events in enumerate(ranks):
        host = {"host": hosts[rank]} if hosts else {}
        head: list[Event] = [started(rank, count, **host, **of_start)]
        head += [] if group == 0 else [wrapped(group or count, layers=layers or {})]
        whole.append([*head, *events] if events else [])
    apart = [(rank, event) for rank, events in enumerate(whole) for event in events]
    backwards = [(rank, event) for rank, events in reversed(list(enumerate(whole))) for event in events]
    together = [
        (rank, event) for row in itertools.zip_longest(*whole) for rank, event in enumerate(row) if event is not None
    ]
    found = [_fed(kind, order) for order in (apart, backwards, together)]
    assert found[0] == found[1] == found[2]
    for each in found[0]:
        assert 1 <= len(each.faults) <= 2
        assert set(each.faults) <= set(kind.faults)
        assert each.message
        assert each.advice
    return found[0]


def _fed(kind: type[Audit], events: list[tuple[int, Event]]) -> list[Finding]:
    run = RunState()
    audit = kind(run)
    assert audit.findings() == []
    assert audit.looked_at() == ""
    for rank, event in events:
        run.feed(rank, event)
        audit.feed(rank, event)
    if audit.findings():
        assert audit.looked_at()
    return audit.findings()
