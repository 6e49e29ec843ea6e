"""Identical inputs on ranks: found by digest, explained by what the loader says."""

from __future__ import annotations

import pytest

from paceline.audits.dp122_identical_batches import IdenticalBatches
from paceline.records.place import Place
from tests.audits.loader_events import TRAIN, facts, judged, read, seen, sharded, shuffled, stepped

SAME = [f"batch {number}" for number in range(6)]


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_with_the_same_batches_are_an_error(world):
    """No sampler, and the same seed."""
    (found,) = judged(IdenticalBatches, [read(shuffled(0)) for _ in range(world)])

    assert (found.severity, found.faults, found.line) == ("error", ["F02", "F01"], TRAIN.line)
    assert "6 of 6" in found.message
    assert (found.rank, found.step) == (1, 1)


def test_of_three_ranks_the_two_that_agree_are_named():
    """Rank 2 has a seed of its own."""
    (found,) = judged(IdenticalBatches, [read(shuffled(seed)) for seed in (1, 0, 1)])

    assert found.message.startswith("ranks 0 and 2 train on identical batches")


def test_an_unused_sampler_is_named():
    """It was made, and then forgotten."""
    (found,) = judged(IdenticalBatches, [read(shuffled(0), unused_samplers=1) for _ in range(2)])

    assert found.faults == ["F02", "F03"]


def test_other_indices_with_the_same_inputs_point_at_the_data_set():
    """__getitem__ ignores the index."""
    ranks = [
        read(sharded(rank, 2), sampler="DistributedSampler", sampler_facts=facts(rank, 2), inputs=SAME)
        for rank in range(2)
    ]

    (found,) = judged(IdenticalBatches, ranks)

    assert found.faults == ["F12"]


def test_without_a_ledger_the_order_says_whether_indices_differ():
    """Only some passes are in the ledger."""
    other = [read(sharded(rank, 2), recorded=False, inputs=SAME, sampler="Own") for rank in range(2)]
    same = [read(shuffled(0), recorded=False, sampler="Own") for _ in range(2)]

    assert judged(IdenticalBatches, other)[0].faults == ["F12"]
    assert judged(IdenticalBatches, same)[0].faults == ["F02"]


def test_two_ranks_with_one_shard_of_a_sampler_read_the_same():
    """The cause is the sampler's, not the data set's."""
    ranks = [read(None, inputs=SAME, end=False, sampler_facts=facts(0, world)) for world in (2, 2)]

    (found,) = judged(IdenticalBatches, ranks)

    assert found.faults == ["F02"]


def test_without_a_ledger_the_sampler_says_that_indices_differ():
    """Nor does the pass need to end."""
    ranks = [
        read(None, inputs=SAME, end=False, sampler="DistributedSampler", sampler_facts=facts(rank, 2))
        for rank in range(2)
    ]

    (found,) = judged(IdenticalBatches, ranks)

    assert found.faults == ["F12"]


def test_a_stream_that_is_not_sharded_is_named():
    """All ranks read all of it."""
    ranks = [read(None, inputs=SAME, iterable=True, samples=None, root_samples=None) for _ in range(2)]

    (found,) = judged(IdenticalBatches, ranks)

    assert found.faults == ["F11", "F02"]


def test_inputs_without_a_loader_are_placed_at_the_forward_pass():
    """Random tensors with equal seeds."""
    step = stepped(1, forward_place=Place(path="train.py", line=12))
    ranks = [[*(seen(number, SAME[number]) for number in range(1, 6)), step] for _ in range(2)]

    (found,) = judged(IdenticalBatches, ranks)

    assert (found.faults, found.line) == (["F21", "F02"], 12)


def test_one_fixed_batch_is_left_alone():
    """A benchmark on one synthetic batch, or an overfit on purpose."""
    assert judged(IdenticalBatches, [[seen(step, "same") for step in range(1, 9)] for _ in range(2)]) == []


def test_fixed_noise_beside_real_batches_is_left_alone():
    """A second forward pass has the same input on all ranks at all steps."""
    ranks = [
        [each for step in range(1, 6) for each in (seen(step, f"{rank} {step}"), seen(step, "noise", forward=1))]
        for rank in range(2)
    ]

    assert judged(IdenticalBatches, ranks) == []


def test_one_of_several_inputs_that_is_equal_is_left_alone():
    """A head that is given the gathered features has the same input on all ranks."""
    ranks = [
        [each for step in range(1, 6) for each in (seen(step, f"{rank} {step}"), seen(step, f"all {step}", wrapper=1))]
        for rank in range(2)
    ]

    assert judged(IdenticalBatches, ranks) == []


def test_two_equal_inputs_are_too_few():
    """Three instants with three inputs are needed."""
    assert judged(IdenticalBatches, [[seen(step, SAME[step]) for step in (1, 2)] for _ in range(2)]) == []


def test_empty_digests_prove_nothing():
    """All elements are equal to each other, as in a tensor of zeros."""
    assert judged(IdenticalBatches, [[seen(step, "") for step in range(1, 9)] for _ in range(2)]) == []


def test_ranks_with_batches_of_their_own_are_right():
    """As a DistributedSampler gives them."""
    assert judged(IdenticalBatches, [read(sharded(rank, 2)) for rank in range(2)]) == []


def test_tensor_parallel_ranks_have_the_same_batches_on_purpose():
    """The wrapper's group is smaller than the job."""
    assert judged(IdenticalBatches, [read(shuffled(0)) for _ in range(4)], group=2) == []


def test_missing_ranks_give_no_finding():
    """One wrote nothing, one was killed after two steps."""
    assert judged(IdenticalBatches, [read(shuffled(0)), read(shuffled(0)), []], world=3) == []
    assert judged(IdenticalBatches, [read(shuffled(0)), read(shuffled(0)[:2], end=False)]) == []
