"""Splits that differ between ranks: found by their digests, and by samples that leak."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from paceline.audits.dp127_split_differs import SplitDiffers
from tests.audits.loader_events import EVALUATE, TRAIN, batches_of, facts, judged, read


def split(seed, samples=24, held_out=6):
    """Training and validation indices."""
    order = random.Random(seed).sample(range(samples), samples)
    return order[held_out:], order[:held_out]


def rank_with(rank, world, seed, *, shard=True, samples=24, **more):
    """Training and evaluation on a split of one data set."""
    training, validation = split(seed, samples)
    own = {"sampler": "DistributedSampler", "sampler_facts": facts(rank, world)} if shard else {}
    given = {"root_samples": samples} | own | more
    step = rank if shard else 0
    stride = world if shard else 1
    return [
        *read(batches_of(training[step::stride]), samples=len(training), subset=f"t{seed}", **given),
        *read(
            batches_of(validation),
            training=False,
            loader=1,
            samples=6,
            subset=f"v{seed}",
            step=3,
            **(given | {"sampler": "SequentialSampler", "sampler_facts": {}}),
        ),
    ]


@pytest.mark.parametrize("world", [2, 3])
def test_a_split_with_a_seed_for_each_rank_leaks(world):
    """Validation samples of one rank are training samples of another."""
    (found,) = judged(SplitDiffers, [rank_with(rank, world, seed=rank) for rank in range(world)])

    leaked = set(split(0)[1]) & {each for r in range(1, world) for each in split(r)[0][r::world]}
    assert (found.severity, found.faults, found.rank, found.line) == ("error", ["F65"], 0, EVALUATE.line)
    assert found.evidence["leaked"] == len(leaked)
    assert found.evidence["sample"] == min(leaked)
    assert f"(first: sample {min(leaked)})" in found.message


def test_subsets_that_differ_are_an_error_before_anything_is_evaluated():
    """A DistributedSampler shards another subset on each rank."""
    (found,) = judged(SplitDiffers, [rank_with(rank, 2, seed=rank)[:1] for rank in range(2)])

    assert (found.severity, found.line, found.rank) == ("error", TRAIN.line, 1)
    assert found.evidence["subsets"] == {"0": "t0", "1": "t1"}


def test_a_leak_is_found_without_a_distributed_sampler():
    """Each rank trains on all of its own split."""
    (found,) = judged(SplitDiffers, [rank_with(rank, 2, seed=rank, shard=False) for rank in range(2)])

    assert "training data of other ranks" in found.message


def test_one_split_on_all_ranks_is_right():
    """The same seed."""
    assert judged(SplitDiffers, [rank_with(rank, 3, seed=0) for rank in range(3)]) == []
    assert judged(SplitDiffers, [rank_with(rank, 2, seed=0, shard=False) for rank in range(2)]) == []


def test_a_split_within_each_rank_s_own_shard_is_right():
    """Subsets differ, and no sample is on two ranks."""
    ranks = [
        [
            *read(batches_of(range(rank, 18, 2)), subset=f"t{rank}", samples=9),
            *read(batches_of(range(18 + rank, 24, 2)), subset=f"v{rank}", samples=3, training=False, loader=1),
        ]
        for rank in range(2)
    ]

    assert judged(SplitDiffers, ranks) == []


@pytest.mark.parametrize("content", [("a", "b"), (None, None)])
def test_a_file_for_each_rank_is_right(content):
    """The same index is another sample, or may be."""
    ranks = [rank_with(rank, 2, seed=rank, shard=False, content=content[rank]) for rank in range(2)]

    assert judged(SplitDiffers, ranks) == []


def test_evaluation_on_training_data_is_no_leak_between_ranks():
    """The training accuracy is measured, on each rank over all samples or over a part."""

    def rank_of(rank, indices):
        given = {"sampler": "DistributedSampler", "sampler_facts": facts(rank, 2), "samples": 24}
        return [
            *read(batches_of(range(rank, 24, 2)), **given),
            *read(batches_of(indices), training=False, loader=1, samples=len(indices), step=3),
        ]

    assert judged(SplitDiffers, [rank_of(rank, range(24)) for rank in range(2)]) == []
    assert judged(SplitDiffers, [rank_of(rank, [1 - rank, 3 - rank]) for rank in range(2)]) == []  # two, by chance


def test_an_index_list_without_subsets_is_judged_by_numbers():
    """A SubsetRandomSampler for each part, drawn with the rank's own seed: too many leak for chance."""
    ranks = [
        [
            *read(batches_of(split(rank, 400, 100)[0]), sampler="SubsetRandomSampler", samples=400, root_samples=400),
            *read(
                batches_of(split(rank, 400, 100)[1]),
                sampler="SubsetRandomSampler",
                samples=400,
                root_samples=400,
                training=False,
                loader=1,
            ),
        ]
        for rank in range(2)
    ]

    (found,) = judged(SplitDiffers, ranks)

    assert found.evidence["leaked"] > 28


def test_models_of_their_own_may_have_folds_of_their_own():
    """Cross-validation, a fold for each rank, without DDP."""
    assert judged(SplitDiffers, [rank_with(rank, 2, seed=rank) for rank in range(2)], group=0) == []


def test_training_accuracy_over_many_samples_is_no_leak():
    """Each rank evaluates samples of its own shard among others."""
    given = {"samples": 400, "root_samples": 400}
    ranks = [
        [
            *read(batches_of(range(rank, 400, 2)), sampler_facts=facts(rank, 2), **given),
            *read(batches_of(range(400)), training=False, loader=1, step=3, **given),
        ]
        for rank in range(2)
    ]

    assert judged(SplitDiffers, ranks) == []


def test_only_one_data_set_can_leak():
    """Another validation set, other content on each rank, or a training pass that was left early."""
    ranks = [rank_with(rank, 2, seed=rank, shard=False) for rank in range(2)]
    other = [
        [replace(each, data=1) if getattr(each, "loader", 0) and hasattr(each, "data") else each for each in one]
        for one in ranks
    ]
    early = [rank_with(rank, 2, seed=rank, shard=False, exhausted=False) for rank in range(2)]
    content = [rank_with(rank, 2, seed=rank, content=str(rank)) for rank in range(2)]

    assert judged(SplitDiffers, other) == []
    assert judged(SplitDiffers, early) == []
    assert judged(SplitDiffers, content) == []


def test_missing_ranks_give_no_finding():
    """One wrote nothing."""
    assert judged(SplitDiffers, [rank_with(0, 3, seed=0), rank_with(1, 3, seed=1), []]) == []
