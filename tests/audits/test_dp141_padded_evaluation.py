"""Evaluations that count samples twice, or leave some out."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from paceline.audits.dp141_padded_evaluation import PaddedEvaluation
from paceline.records.observed_rank import LoaderEnded
from tests.audits.loader_events import EVALUATE, batches_of, called, done, facts, judged, read, sharded, stepped


def padded(rank, world, samples=25, **more):
    """An evaluation with a DistributedSampler."""
    given = {"sampler": "DistributedSampler", "sampler_facts": facts(rank, world, shuffle=False), "samples": samples}
    batches = sharded(rank, world, None, samples)
    return read(batches, training=False, **(given | {"root_samples": samples} | more))


@pytest.mark.parametrize(("world", "repeated"), [(2, [0]), (3, [0, 1])])
def test_repeated_samples_are_named(world, repeated):
    """25 samples are padded to 26 or 27."""
    (found,) = judged(PaddedEvaluation, [padded(rank, world) for rank in range(world)])

    assert (found.severity, found.faults, found.line) == ("warning", ["F70"], EVALUATE.line)
    assert f"counts {25 + len(repeated)} samples instead of 25" in found.message
    assert found.evidence["repeated"] == repeated


def test_one_rank_may_read_the_repeated_sample_itself():
    """Three samples on four ranks: rank 3 repeats sample 0; with one rank's own repetition the count is the same."""
    ranks = [padded(rank, 4, samples=3) for rank in range(4)]
    own = [
        read([[0, 1, 2, 2]], training=False, samples=6, sampler="Padding", subset=None),
        read([[3, 4, 5]], training=False, samples=6, sampler="Padding"),
    ]

    assert judged(PaddedEvaluation, ranks)[0].evidence["repeated"] == [0]
    assert judged(PaddedEvaluation, own)[0].evidence["repeated"] == [2]


def test_without_a_ledger_the_counts_tell():
    """Which samples is not known then."""
    (found,) = judged(PaddedEvaluation, [padded(rank, 2, recorded=False) for rank in range(2)])

    assert "repeats 1 of them, and" in found.message
    assert found.evidence["repeated"] == []


def test_a_mean_over_ranks_does_not_help():
    """Sums and counts are reduced, those of the padding included."""
    ranks = [[*padded(rank, 2), called("all_reduce", 8), called("all_gather", 8)] for rank in range(2)]

    assert len(judged(PaddedEvaluation, ranks)) == 1


@pytest.mark.parametrize("op", ["all_gather", "all_gather_into_tensor", "all_gather_object", "gather"])
def test_gathered_predictions_may_be_trimmed(op):
    """Something of the size of a prediction for each sample is gathered after the pass."""
    ranks = [[*padded(rank, 2), called(op, 13 * 4)] for rank in range(2)]

    assert judged(PaddedEvaluation, ranks) == []


def test_predictions_may_be_gathered_batch_by_batch():
    """During the pass."""
    ranks = [[each for event in padded(rank, 2) for each in (event, called("all_gather", 16))] for rank in range(2)]

    assert judged(PaddedEvaluation, ranks) == []


def test_what_is_gathered_after_the_next_step_is_another_thing():
    """Training goes on."""
    ranks = [[*padded(rank, 2, step=5), stepped(6), called("all_gather", 400)] for rank in range(2)]

    assert len(judged(PaddedEvaluation, ranks)) == 1


def test_every_rank_may_evaluate_all_samples():
    """Each sample counts once on each rank."""
    ranks = [read(batches_of(range(25)), training=False, samples=25, sampler="SequentialSampler") for _ in range(2)]

    assert judged(PaddedEvaluation, ranks) == []


def test_shards_without_padding_are_right():
    """Subset(dataset, range(rank, n, world)), or a length that divides."""
    own = [
        read(batches_of(range(r, 25, 2)), training=False, samples=13 - r, root_samples=25, subset=str(r), place=None)
        for r in range(2)
    ]

    assert judged(PaddedEvaluation, own) == []
    assert judged(PaddedEvaluation, [padded(rank, 2, samples=24) for rank in range(2)]) == []


def test_a_framework_s_loader_is_left_alone():
    """gather_for_metrics trims."""
    assert judged(PaddedEvaluation, [padded(rank, 2, loader_class="DataLoaderShard") for rank in range(2)]) == []


def test_random_samples_are_no_padding():
    """Drawn with replacement, by a sampler that shards as well."""
    ranks = [read([[0, 1, 1, 5], [7, 7, 2, rank]], training=False, sampler="Draws") for rank in range(2)]

    assert judged(PaddedEvaluation, ranks) == []


def dropping(rank, tail):
    """As the ImageNet example: a sampler that drops the tail, and a loader over the tail on every rank."""
    main = read(
        batches_of(range(rank, 24, 2)),
        training=False,
        samples=25,
        root_samples=25,
        sampler="DistributedSampler",
        sampler_facts=facts(rank, 2, shuffle=False, drop_last=True),
    )
    rest = read([[24]], training=False, loader=1, samples=1, root_samples=25, subset="t", sampler="SequentialSampler")
    return [*main, *(rest if tail else []), done()]


def test_a_tail_that_a_second_loader_reads_is_right():
    """Each sample counts once in the end."""
    assert judged(PaddedEvaluation, [dropping(rank, tail=True) for rank in range(2)]) == []


def test_a_tail_that_nobody_reads_is_an_info():
    """Once the script has ended; before, a second loader may still come."""
    (found,) = judged(PaddedEvaluation, [dropping(rank, tail=False) for rank in range(2)])

    assert (found.severity, found.faults) == ("info", ["F70"])
    assert "leaves out 1 of 25 samples" in found.message
    assert judged(PaddedEvaluation, [dropping(rank, tail=False)[:-1] for rank in range(2)]) == []


def test_training_and_evaluations_that_are_left_early_are_passed_over():
    """A look at some batches counts nothing."""
    assert judged(PaddedEvaluation, [padded(rank, 2, exhausted=False) for rank in range(2)]) == []
    train = [read(sharded(r, 2, None, 25), samples=25, sampler_facts=facts(r, 2)) for r in range(2)]
    assert judged(PaddedEvaluation, train) == []


def test_oversampling_is_no_padding():
    """A sampler of the script repeats many samples, or leaves some out."""
    many = [read([[0, 1, 2, 0, 1, 2], [3, 4, 5, rank]], training=False, samples=6, sampler="Own") for rank in range(2)]
    some = [read([[0, 1, 2, 2 * rank]], training=False, samples=6, sampler="Own") for rank in range(2)]

    assert judged(PaddedEvaluation, many) == []
    assert judged(PaddedEvaluation, some) == []


def test_without_a_ledger_only_padding_explains_the_counts():
    """A sampler that drops the rest, or ranks whose counts are not known."""
    dropped = [
        padded(rank, 2, recorded=False, sampler_facts=facts(rank, 2, shuffle=False, drop_last=True))
        for rank in range(2)
    ]
    unknown = [
        [
            replace(each, samples=None) if isinstance(each, LoaderEnded) else each
            for each in padded(r, 2, recorded=False)
        ]
        for r in range(2)
    ]
    own = [padded(rank, 2, recorded=False, sampler_facts={}) for rank in range(2)]

    assert judged(PaddedEvaluation, dropped) == []
    assert judged(PaddedEvaluation, unknown) == []
    assert judged(PaddedEvaluation, own) == []


def test_passes_that_cannot_be_compared_are_passed_over():
    """Other data, other steps, or a stream."""
    assert judged(PaddedEvaluation, [padded(rank, 2, content=str(rank)) for rank in range(2)]) == []
    assert judged(PaddedEvaluation, [padded(rank, 2, step=rank) for rank in range(2)]) == []
    assert judged(PaddedEvaluation, [padded(rank, 2, iterable=True) for rank in range(2)]) == []


def test_missing_ranks_give_no_finding():
    """One wrote nothing, one was killed in the pass."""
    assert judged(PaddedEvaluation, [padded(0, 3), padded(1, 3), []]) == []
    assert judged(PaddedEvaluation, [padded(0, 2), padded(1, 2, end=False)]) == []
