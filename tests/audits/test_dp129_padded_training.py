"""Training data that do not divide by the number of ranks."""

from __future__ import annotations

from paceline.audits.dp129_padded_training import PaddedTraining
from tests.audits.loader_events import TRAIN, facts, judged, read, sharded


def ranks_with(world, samples, training=True, **more):
    """A pass of each rank."""
    return [
        read(
            sharded(rank, world, samples=samples),
            training=training,
            samples=samples,
            sampler="DistributedSampler",
            sampler_facts=facts(rank, world, **more),
        )
        for rank in range(world)
    ]


def test_repeated_samples_are_counted():
    """25 samples over 3 ranks are 27."""
    (found,) = judged(PaddedTraining, ranks_with(3, 25))

    assert (found.severity, found.faults, found.line) == ("info", ["F18"], TRAIN.line)
    assert "25 samples do not divide by 3 ranks: the sampler repeats 2 of them" in found.message


def test_nothing_is_repeated_where_it_divides_or_the_rest_is_dropped():
    """Or where it is an evaluation, which has an audit of its own."""
    assert judged(PaddedTraining, ranks_with(3, 24)) == []
    assert judged(PaddedTraining, ranks_with(3, 25, drop_last=True)) == []
    assert judged(PaddedTraining, ranks_with(3, 25, training=False)) == []


def test_without_a_distributed_sampler_nothing_is_padded():
    """Each rank has a loader of its own."""
    assert judged(PaddedTraining, [read(sharded(rank, 2, samples=25), samples=25) for rank in range(2)]) == []


def test_missing_ranks_give_no_finding():
    """One wrote nothing."""
    assert judged(PaddedTraining, [*ranks_with(3, 25)[:2], []]) == []
