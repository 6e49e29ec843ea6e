"""The same order in each epoch: found by digests of orders, unless the order is kept on purpose."""

from __future__ import annotations

import pytest

from paceline.audits.dp123_same_order_each_epoch import SameOrderEachEpoch
from tests.audits.loader_events import TRAIN, batches_of, facts, judged, read, sharded, shuffled, wrapped


def epochs(rank, world, orders, **more):
    """Training passes with a DistributedSampler."""
    given = {"sampler": "DistributedSampler", "sampler_facts": facts(rank, world, **more.pop("facts", {}))}
    calls = more.pop("set_epoch", [None] * len(orders))
    samples = more.get("samples", 24)
    return [
        event
        for number, epoch in enumerate(orders)
        for event in read(
            sharded(rank, world, epoch=epoch, samples=samples),
            number=number,
            step=3 * number,
            set_epoch=calls[number],
            **(given | more),
        )
    ]


@pytest.mark.parametrize("world", [2, 3])
def test_a_sampler_without_set_epoch_is_an_error(world):
    """Two passes in the same order on all ranks."""
    (found,) = judged(SameOrderEachEpoch, [epochs(r, world, [0, 0], samples=48) for r in range(world)])

    assert (found.severity, found.faults, found.line) == ("error", ["F06"], TRAIN.line)
    assert "set_epoch is not called" in found.message
    assert found.step == 3


def test_set_epoch_that_does_not_reach_the_sampler_is_told_apart():
    """Another sampler was given the epoch."""
    (found,) = judged(SameOrderEachEpoch, [epochs(r, 2, [0, 0], set_epoch=[0, 1]) for r in range(2)])

    assert found.faults == ["F07"]


def test_an_evaluation_that_stays_open_during_training_may_repeat_its_order():
    """Its batches are taken without gradients."""
    ranks = [epochs(rank, 2, [0, 0], samples=48, with_gradients=False) for rank in range(2)]

    assert judged(SameOrderEachEpoch, ranks) == []


def test_a_loader_that_is_made_anew_in_each_epoch_is_compared_too():
    """Passes of one line belong together."""
    ranks = [[*epochs(rank, 2, [0]), *epochs(rank, 2, [0], loader=1)] for rank in range(2)]

    (found,) = judged(SameOrderEachEpoch, ranks)

    assert found.faults == ["F06"]


def test_a_random_sampler_that_repeats_its_order_is_a_warning():
    """Torch is seeded with the same number before each epoch."""
    (found,) = judged(
        SameOrderEachEpoch, [[*read(shuffled(rank)), *read(shuffled(rank), number=1, step=6)] for rank in range(2)]
    )

    assert (found.severity, found.faults) == ("warning", ["F06"])
    assert "set_epoch" not in found.message


def stream(rank, workers, set_epoch, inputs=None):
    """Two passes over a stream with the same batches, unless others are given."""
    given = {"iterable": True, "samples": None, "root_samples": None, "workers": workers, "persistent": bool(workers)}
    same = [f"{rank} {number}" for number in range(6)]
    return [
        event
        for number in range(2)
        for event in read(
            None,
            inputs=inputs[number] if inputs else same,
            number=number,
            step=6 * number,
            set_epoch=set_epoch[number],
            **given,
        )
    ]


def test_persistent_workers_of_a_stream_keep_their_epoch():
    """set_epoch changes the copy of the main process."""
    (found,) = judged(SameOrderEachEpoch, [stream(rank, 2, [0, 1]) for rank in range(2)])
    (unknown,) = judged(SameOrderEachEpoch, [stream(rank, 2, [None, None]) for rank in range(2)])

    assert (found.severity, found.faults) == ("warning", ["F08"])
    assert "persistent workers" in found.message
    assert "persistent_workers=False" in found.advice
    assert unknown.severity == "info"
    assert judged(SameOrderEachEpoch, [stream(rank, 0, [0, 1]) for rank in range(2)]) == []


def test_set_epoch_gives_another_order():
    """As it should be."""
    assert judged(SameOrderEachEpoch, [epochs(rank, 2, [0, 1], set_epoch=[0, 1]) for rank in range(2)]) == []


def test_two_passes_over_one_epoch_may_be_on_purpose():
    """Discriminator and generator each take a pass."""
    assert judged(SameOrderEachEpoch, [epochs(rank, 2, [0, 0], set_epoch=[0, 0]) for rank in range(2)]) == []
    orders = [0, 0, 1, 1]
    assert judged(SameOrderEachEpoch, [epochs(rank, 2, orders, set_epoch=orders) for rank in range(2)]) == []


@pytest.mark.parametrize("more", [{"facts": {"shuffle": False}}, {"sampler": "SequentialSampler", "sampler_facts": {}}])
def test_an_order_that_is_kept_on_purpose_is_left_alone(more):
    """A fixed permutation without shuffling."""
    assert judged(SameOrderEachEpoch, [epochs(rank, 2, [0, 0], **more) for rank in range(2)]) == []


def test_an_own_sampler_that_keeps_an_order_is_an_info():
    """Sorted by length, perhaps."""
    (found,) = judged(
        SameOrderEachEpoch, [epochs(r, 2, [0, 0], sampler="ByLength", sampler_facts={}) for r in range(2)]
    )

    assert found.severity == "info"


def test_samples_in_order_are_another_audit_s():
    """Nothing was shuffled."""
    ranks = [
        [*read(batches_of(range(r, 24, 2)), sampler="?"), *read(batches_of(range(r, 24, 2)), sampler="?", number=1)]
        for r in range(2)
    ]

    assert judged(SameOrderEachEpoch, ranks) == []


def test_one_batch_over_and_over_is_an_overfit_on_purpose():
    """Fewer than three batches a pass."""
    assert judged(SameOrderEachEpoch, [epochs(rank, 2, [0, 0], samples=8) for rank in range(2)]) == []


def test_a_second_model_may_see_the_same_order():
    """A search over learning rates starts again from the same seed."""
    ranks = [[*epochs(rank, 2, [0]), wrapped(2, number=1), *epochs(rank, 2, [0], loader=1)] for rank in range(2)]

    assert judged(SameOrderEachEpoch, ranks) == []


def test_evaluations_repeat_their_order_rightly():
    """Only training is to be shuffled."""
    ranks = [[event for n in range(2) for event in read(shuffled(0), training=False, number=n)] for _ in range(2)]

    assert judged(SameOrderEachEpoch, ranks) == []


def test_a_stream_with_other_batches_or_only_two_is_right():
    """It is shuffled; or it is a synthetic one."""
    other = [["a", "b", "c", "d", "e", "f"], ["a", "b", "c", "d", "f", "e"]]
    two = [["a", "b"] * 3] * 2

    assert judged(SameOrderEachEpoch, [stream(rank, 2, [0, 1], other) for rank in range(2)]) == []
    assert judged(SameOrderEachEpoch, [stream(rank, 2, [0, 1], two) for rank in range(2)]) == []


def test_passes_that_are_left_early_are_passed_over():
    """A warm-up of some steps, then training."""
    assert judged(SameOrderEachEpoch, [epochs(rank, 2, [0, 0], exhausted=False) for rank in range(2)]) == []


def test_three_passes_over_one_epoch_are_a_mistake():
    """set_epoch(0), again and again."""
    ranks = [epochs(rank, 2, [0, 0, 0], set_epoch=[0, 0, 0]) for rank in range(2)]

    assert len(judged(SameOrderEachEpoch, ranks)) == 1


def test_missing_ranks_give_no_finding():
    """One wrote nothing, one was killed in its second pass."""
    assert judged(SameOrderEachEpoch, [epochs(0, 3, [0, 0], samples=48), epochs(1, 3, [0, 0], samples=48), []]) == []
    assert judged(SameOrderEachEpoch, [epochs(0, 2, [0, 0]), epochs(1, 2, [0, 0])[:-1]]) == []
