"""Scripts that are right give no error and no warning, from any audit."""

from __future__ import annotations

import pytest

from paceline.audits.run_judge import RunJudge
from tests.audits.loader_events import (
    batches_of,
    called,
    done,
    drawn,
    facts,
    read,
    sharded,
    shuffled,
    started,
    stepped,
    touched,
    wrapped,
)

WORLD, SAMPLES = 3, 49


def with_sampler(rank):
    """Three epochs with set_epoch, evaluation and checkpoint after each."""
    events = []
    for epoch in range(3):
        step = 5 * epoch
        events += read(
            sharded(rank, WORLD, epoch=epoch, samples=SAMPLES),
            number=epoch,
            step=step,
            samples=SAMPLES,
            root_samples=SAMPLES,
            set_epoch=epoch,
            sampler="DistributedSampler",
            sampler_facts=facts(rank, WORLD, epoch=epoch),
        )
        events += [stepped(step + batch) for batch in range(1, 6)]
        events.append(drawn(step + 5, torch=f"{rank} {epoch}", numpy=f"{rank} {epoch}"))
        events += evaluated(rank, epoch, step + 5)
        events += saved(rank, epoch, step + 5)
    return events


def evaluated(rank, number, step):
    """Disjoint shards without padding, and reduced sums."""
    own = batches_of(range(rank, 20, WORLD))
    given = {"data": 1, "content": "v", "root_samples": 20, "subset": f"v{rank}", "sampler": "SequentialSampler"}
    shard = read(own, training=False, loader=1, number=number, step=step, samples=len(range(rank, 20, WORLD)), **given)
    return [*shard, called("all_reduce", 16, step=step, size=WORLD)]


def saved(rank, epoch, step):
    """Rank 0 writes, a barrier, and all read."""
    path, before = f"/job/runs/20261130-153000/epoch{epoch}.pt", 10 * (epoch + 1)
    own = touched(f"/job/runs/20261130-153000/random{rank}.pt", step=step, collectives=before, by="torch.save")
    log = touched("/job/metrics.csv", "append", step=step, collectives=before)
    write = touched(path, step=step, collectives=before, by="torch.save")
    barrier = called("barrier", 0, step=step, size=WORLD)
    load = touched(path, "read", step=step, collectives=before + 1, by="torch.load")
    return [own, *([log, write] if rank == 0 else []), barrier, load]


def with_slices(rank):
    """All ranks draw the same batches of 6, and train on 2 rows of each."""
    return [
        event
        for epoch in range(2)
        for event in read(
            shuffled(epoch, 24, 6),
            number=epoch,
            step=4 * epoch,
            batch_size=6,
            rows=2,
            inputs=[f"{rank} {epoch} {batch}" for batch in range(4)],
        )
    ]


def with_files(rank):
    """Each rank shuffles a file of its own, of its own length, and rank 0 evaluates alone."""
    given = {"samples": 24 + rank, "root_samples": 24 + rank, "content": f"file {rank}"}
    events = [e for epoch in range(2) for e in read(shuffled(3 * epoch + rank, 24 + rank), number=epoch, **given)]
    if rank == 0:
        events += read(batches_of(range(20)), training=False, loader=1, step=7, data=1, samples=20, root_samples=20)
    return events


@pytest.mark.parametrize("script", [with_sampler, with_slices, with_files])
@pytest.mark.parametrize("apart", [True, False])
def test_a_right_script_gives_no_error_and_no_warning(script, apart):
    """Ranks one after the other, or interleaved."""
    ranks = [[started(r, WORLD), wrapped(WORLD, layers={"dropout": 1}), *script(r), done()] for r in range(WORLD)]
    order = [(rank, index) for rank, events in enumerate(ranks) for index in range(len(events))]
    judge = RunJudge()

    for rank, index in order if apart else sorted(order, key=lambda each: each[1]):
        judge.feed(rank, ranks[rank][index])

    assert judge.failed == {}
    assert [each for each in judge.findings() if each.severity != "info"] == []
    assert any(audit.looked_at() for audit in judge.audits)
