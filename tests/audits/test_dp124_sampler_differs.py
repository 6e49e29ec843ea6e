"""Samplers that do not fit together: found by their settings, counted in the ledger."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from paceline.audits.dp124_sampler_differs import SamplerDiffers
from tests.audits.loader_events import TRAIN, facts, judged, read, sharded, shuffled


def ranks_with(*given, world=None, **more):
    """A training pass of each rank whose sampler has these settings."""
    count = world or len(given)
    return [
        read(
            sharded(rank, count, seed=one.get("seed", 0), epoch=one.get("epoch", 0)),
            sampler="DistributedSampler",
            sampler_facts=facts(rank, count) | one,
            **more,
        )
        for rank, one in enumerate(given)
    ]


@pytest.mark.parametrize("key", ["seed", "epoch"])
def test_another_seed_or_epoch_is_an_error_that_counts_what_is_lost(key):
    """Each rank takes its part of another permutation."""
    (found,) = judged(SamplerDiffers, ranks_with({key: 0}, {key: 0}, {key: 5}))

    assert (found.severity, found.faults, found.line, found.rank) == ("error", ["F09"], TRAIN.line, 2)
    assert f"{key} 0 on rank 0 and 5 on rank 2" in found.message
    assert found.evidence["read_twice"] == found.evidence["never_read"] > 0
    assert found.evidence["values"] == {"0": 0, "1": 0, "2": 5}


def test_the_settings_are_enough_before_the_pass_ends():
    """A hang or a kill may follow."""
    ranks = [each[:1] for each in ranks_with({"seed": 0}, {"seed": 1})]

    (found,) = judged(SamplerDiffers, ranks)

    assert "read_twice" not in found.evidence


def test_two_ranks_with_one_shard_are_an_error():
    """Rank 2 was given rank 1's."""
    (found,) = judged(SamplerDiffers, ranks_with({}, {}, {"rank": 1}))

    assert "ranks 1 and 2 read the same shard" in found.message


def test_fewer_shards_than_ranks_are_an_error():
    """num_replicas is written down as 1, and every rank trains on whole batches."""
    ranks = [read(shuffled(rank), sampler="DistributedSampler", sampler_facts=facts(0, 1, seed=0)) for rank in range(2)]

    (found,) = judged(SamplerDiffers, ranks)

    assert "the sampler makes 1 shard for 2 ranks" in found.message


def test_a_sampler_over_a_shard_of_its_own_rank_is_right():
    """The script splits the data with Subset, and shuffles each part with a sampler that makes one shard."""
    ranks = [
        read(shuffled(rank), sampler="DistributedSampler", sampler_facts=facts(0, 1, seed=0), subset=f"part {rank}")
        for rank in range(2)
    ]

    assert judged(SamplerDiffers, ranks) == []


def test_one_shard_of_which_each_rank_takes_a_slice_is_right():
    """All ranks draw the global batch, and train on their rows of it."""
    ranks = [
        read(shuffled(0), rows=2, sampler="DistributedSampler", sampler_facts=facts(0, 1), inputs=list(f"abcdef{rank}"))
        for rank in range(2)
    ]

    assert judged(SamplerDiffers, ranks) == []


def test_equal_settings_are_right():
    """Ranks differ in their rank only."""
    assert judged(SamplerDiffers, ranks_with({}, {}, {})) == []


def test_an_epoch_does_not_matter_without_shuffling():
    """The order is that of the data set."""
    assert judged(SamplerDiffers, ranks_with({"shuffle": False}, {"shuffle": False, "epoch": 3})) == []


def test_every_rank_may_evaluate_all_samples():
    """num_replicas=1 on purpose."""
    ranks = [read(shuffled(0), training=False, sampler_facts=facts(0, 1)) for _ in range(2)]

    assert judged(SamplerDiffers, ranks) == []


def test_groups_smaller_than_the_job_have_shards_of_their_own():
    """Tensor-parallel ranks share a shard."""
    ranks = ranks_with(*({"num_replicas": 2, "rank": rank // 2} for rank in range(4)))

    assert judged(SamplerDiffers, ranks, group=2) == []


def test_a_pass_that_only_rank_0_makes_does_not_shift_the_others():
    """Rank 0 looks at a batch before training; its loaders and passes have other numbers."""
    first, second = (ranks_with({"epoch": epoch}, {"epoch": epoch}, step=3 * epoch, number=epoch) for epoch in (0, 1))
    preview = read(shuffled(0)[:1], training=False, exhausted=False, sampler_facts=facts(0, 2))
    shifted = [each for one in (first, second) for each in one[0] if not hasattr(each, "indices")]

    assert judged(SamplerDiffers, [[*preview, *shifted], [*first[1], *second[1]]]) == []


def test_a_file_for_each_rank_may_have_a_seed_of_its_own():
    """Data differ between ranks."""
    ranks = ranks_with({"seed": 0}, {"seed": 1})
    other = [each if not hasattr(each, "content") else replace(each, content="d") for each in ranks[1]]

    assert judged(SamplerDiffers, [ranks[0], other]) == []


@pytest.mark.parametrize(("key", "values"), [("num_replicas", (2, 3)), ("shuffle", (True, False))])
def test_samplers_of_other_kinds_do_not_fit(key, values):
    """One shuffles, or counts other ranks."""
    (found,) = judged(SamplerDiffers, ranks_with(*({key: value} for value in values)))

    assert found.evidence["differs"] == key


def test_groups_may_have_seeds_of_their_own():
    """Each half of the ranks trains a model of its own."""
    assert judged(SamplerDiffers, ranks_with({"seed": 0}, {"seed": 1}), group=1) == []


def test_missing_ranks_give_no_finding():
    """One wrote nothing."""
    assert judged(SamplerDiffers, [*ranks_with({"seed": 0}, {"seed": 1}, world=3), []]) == []
