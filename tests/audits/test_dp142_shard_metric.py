"""Evaluations whose results stay on their rank."""

from __future__ import annotations

import pytest

from paceline.audits.dp142_shard_metric import ShardMetric
from paceline.records.observed import NotObserved
from tests.audits.loader_events import (
    EVALUATE,
    batches_of,
    called,
    done,
    facts,
    judged,
    read,
    sharded,
    stepped,
    touched,
)


def evaluated(rank, world, *after, step=5, own=False, **more):
    """An evaluation of a shard, and what the script does after it."""
    sampler = {"sampler": "DistributedSampler", "sampler_facts": facts(rank, world, shuffle=False)}
    given = {} if own else sampler
    return [*read(sharded(rank, world, None), training=False, step=step, **(given | more)), *after]


@pytest.mark.parametrize("world", [2, 3])
def test_a_result_that_no_rank_sends_is_a_warning(world):
    """Rank 0 prints the number of its shard."""
    (found,) = judged(ShardMetric, [evaluated(rank, world, stepped(6), done()) for rank in range(world)])

    assert (found.severity, found.faults, found.line) == ("warning", ["F71"], EVALUATE.line)
    assert f"rank 0 reports {24 // world} of 24 samples" in found.message


def test_shards_are_recognized_by_their_samples():
    """A sampler of the script's own."""
    (found,) = judged(ShardMetric, [evaluated(rank, 2, done(), own=True, sampler="Own") for rank in range(2)])

    assert found.faults == ["F71"]


def test_a_shard_without_a_ledger_is_recognized_by_its_sampler():
    """The ledger has some passes only."""
    (found,) = judged(ShardMetric, [evaluated(rank, 2, done(), recorded=False) for rank in range(2)])

    assert found.faults == ["F71"]


@pytest.mark.parametrize("op", ["all_reduce", "reduce", "all_gather_object", "gather", "send"])
def test_a_result_that_is_merged_is_right(op):
    """After the pass, or batch by batch during it; one rank's call is enough."""
    after = [evaluated(rank, 2, *([called(op, 16)] if rank else []), done()) for rank in range(2)]
    events = [evaluated(rank, 2) for rank in range(2)]
    during = [[each[0], called(op, 16), *each[1:], done()] for each in events]

    assert judged(ShardMetric, after) == []
    assert judged(ShardMetric, during) == []


@pytest.mark.parametrize("calls", [[called("barrier", 0)], [called("broadcast", 4, root=0)]])
def test_a_barrier_or_rank_0_s_own_number_merges_nothing(calls):
    """The number stays that of one shard."""
    (found,) = judged(ShardMetric, [evaluated(rank, 2, *calls, done()) for rank in range(2)])

    assert found.faults == ["F71"]


def test_a_broadcast_from_each_rank_merges():
    """All ranks know all numbers then."""
    calls = [called("broadcast", 4, root=0), called("broadcast", 4, root=1)]

    assert judged(ShardMetric, [evaluated(rank, 2, *calls, done()) for rank in range(2)]) == []


def test_a_collective_of_the_next_step_merges_nothing():
    """It belongs to training."""
    later = called("all_reduce", 4, step=6)

    (found,) = judged(ShardMetric, [evaluated(rank, 2, later, stepped(6), later, done()) for rank in range(2)])

    assert found.faults == ["F71"]


def test_one_merged_evaluation_of_several_clears_the_loop():
    """A quick look in between may stay local."""
    ranks = [
        [
            *evaluated(rank, 2, stepped(6)),
            *evaluated(rank, 2, called("all_reduce", 8), done(), step=9, number=1),
        ]
        for rank in range(2)
    ]

    assert judged(ShardMetric, ranks) == []


def test_files_of_every_rank_may_merge_the_results():
    """Each rank writes its part, and rank 0 reads them."""
    ranks = [evaluated(rank, 2, touched(f"/out/part{rank}.json", step=5), done()) for rank in range(2)]

    assert judged(ShardMetric, ranks) == []


def test_every_rank_may_evaluate_all_samples():
    """Its number is that of all data."""
    ranks = [[*read(batches_of(range(24)), training=False, step=5), done()] for _ in range(2)]

    assert judged(ShardMetric, ranks) == []


def test_one_rank_may_evaluate_alone():
    """The others go on."""
    assert judged(ShardMetric, [[*read(batches_of(range(24)), training=False, step=5), done()], [done()]]) == []


def test_a_pass_before_training_is_no_evaluation():
    """It counts classes, or warms up."""
    assert judged(ShardMetric, [evaluated(rank, 2, done(), step=0) for rank in range(2)]) == []


def test_without_the_probe_nothing_is_said():
    """Collectives were not watched, or not all the time."""
    ranks = [evaluated(rank, 2, done()) for rank in range(2)]
    broken = [[*each, NotObserved(what="collectives", why="RuntimeError")] for each in ranks]

    assert judged(ShardMetric, ranks, watched=["loaders"]) == []
    assert judged(ShardMetric, broken) == []
    assert len(judged(ShardMetric, ranks, watched=["loaders", "collectives"])) == 1


def test_padded_shards_are_shards():
    """A sample on two ranks, to fill up."""
    given = {"samples": 25, "root_samples": 25, "training": False, "step": 5, "sampler": "DistributedSampler"}
    ranks = [
        [*read(sharded(r, 2, None, 25), sampler_facts=facts(r, 2, shuffle=False), **given), done()] for r in range(2)
    ]

    assert len(judged(ShardMetric, ranks)) == 1


@pytest.mark.parametrize("recorded", [True, False])
def test_the_same_shard_on_all_ranks_is_another_audit_s(recorded):
    """Two samplers with one rank."""
    same = {"sampler_facts": facts(0, 2), "training": False, "step": 5, "recorded": recorded}

    assert judged(ShardMetric, [[*read(sharded(0, 2, None), **same), done()] for _ in range(2)]) == []


def test_training_passes_need_no_metric():
    """Gradients are what ranks share there."""
    ranks = [[*read(sharded(r, 2), sampler_facts=facts(r, 2), step=5), stepped(20), done()] for r in range(2)]

    assert judged(ShardMetric, ranks) == []


def test_data_of_each_rank_s_own_are_left_alone():
    """Rank r evaluates task r."""
    ranks = [evaluated(rank, 2, done(), own=True, content=str(rank)) for rank in range(2)]

    assert judged(ShardMetric, ranks) == []


def test_a_rank_that_was_killed_may_have_merged_later():
    """Its window never closes."""
    assert judged(ShardMetric, [evaluated(0, 2, done()), evaluated(1, 2)]) == []
    assert judged(ShardMetric, [evaluated(0, 3, done()), evaluated(1, 3, done()), []]) == []
