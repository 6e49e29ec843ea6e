"""Data sets that differ between ranks: found by length and digest."""

from __future__ import annotations

import pytest

from paceline.audits.dp126_data_set_differs import DataSetDiffers
from tests.audits.loader_events import TRAIN, begun, facts, judged, read, sharded


def ranks_with(*given, world=None, **more):
    """A training pass of each rank over data with these properties."""
    count = world or len(given)
    return [
        read(
            sharded(rank, count, samples=one.get("samples", 24)),
            sampler="DistributedSampler",
            **({"sampler_facts": facts(rank, count)} | more | one),
        )
        for rank, one in enumerate(given)
    ]


def test_another_length_on_a_rank_is_a_warning():
    """A file is missing there, and both run the same number of batches."""
    (found,) = judged(DataSetDiffers, ranks_with({"samples": 24}, {"samples": 23}, {"samples": 24}))

    assert (found.severity, found.faults, found.rank, found.line) == ("warning", ["F14"], 1, TRAIN.line)
    assert "24 samples on rank 0 and 23 on rank 1" in found.message


def test_another_number_of_batches_makes_it_an_error():
    """One rank trains longer, and waits for the other."""
    (found,) = judged(DataSetDiffers, ranks_with({"samples": 24}, {"samples": 40}))

    assert (found.severity, found.faults) == ("error", ["F14"])
    assert "different numbers of steps" in found.message


def test_a_rank_that_hangs_in_its_first_pass_is_enough_for_a_warning():
    """Its pass never ends."""
    ranks = ranks_with({"samples": 24}, {"samples": 40})

    (found,) = judged(DataSetDiffers, [ranks[0], ranks[1][:-1]])

    assert found.severity == "warning"


def test_the_same_samples_in_another_order_are_a_warning():
    """os.listdir gives them as it likes."""
    (found,) = judged(
        DataSetDiffers,
        ranks_with({"content": "a", "content_unordered": "s"}, {"content": "b", "content_unordered": "s"}),
    )

    assert (found.severity, found.faults, found.rank) == ("warning", ["F13"], 1)
    assert "another order" in found.message


@pytest.mark.parametrize(("unordered", "severity"), [((None, None), "warning"), (("s", "t"), "info")])
def test_other_data_are_an_info_where_it_is_known_that_they_are_others(unordered, severity):
    """Each rank draws random data of its own."""
    ranks = ranks_with(*({"content": str(n), "content_unordered": each} for n, each in enumerate(unordered)))

    (found,) = judged(DataSetDiffers, ranks)

    assert (found.severity, found.faults) == (severity, ["F13"])


def test_equal_data_are_right():
    """Same length, same digest; or no digest at all."""
    assert judged(DataSetDiffers, ranks_with({}, {}, {})) == []
    assert judged(DataSetDiffers, ranks_with({"content": None}, {"content": None})) == []
    assert judged(DataSetDiffers, ranks_with({"content": None}, {"content": "a"})) == []


def test_a_shard_for_each_rank_is_right():
    """Without a DistributedSampler, length and content are the rank's own business."""
    own = {"sampler": "RandomSampler", "sampler_facts": {}}
    ranks = [read(sharded(0, 2), **own, samples=24 + r, root_samples=24 + r, content=str(r)) for r in range(2)]

    assert judged(DataSetDiffers, ranks) == []


def test_a_cache_that_fills_while_it_is_read_is_no_difference():
    """The data set was read through another loader before."""
    ranks = [
        [*each, begun(loader=1, step=6, sampler_facts=facts(rank, 2), content=f"cached {rank}", samples=12)]
        for rank, each in enumerate(ranks_with({}, {}))
    ]

    assert judged(DataSetDiffers, ranks) == []


def test_the_length_of_the_root_data_set_counts_below_a_subset():
    """Subsets are equally long."""
    (found,) = judged(DataSetDiffers, ranks_with({"root_samples": 30}, {"root_samples": 31}))

    assert "30 samples on rank 0 and 31 on rank 1" in found.message


def test_an_unknown_length_proves_nothing():
    """One rank could not tell."""
    assert judged(DataSetDiffers, ranks_with({"root_samples": None}, {})) == []


def test_evaluations_and_passes_that_end_early_are_no_proof_of_uneven_steps():
    """A warning stays a warning."""
    for more in ({"training": False}, {"exhausted": False}):
        (found,) = judged(DataSetDiffers, ranks_with({"samples": 24}, {"samples": 40}, **more))
        assert found.severity == "warning"


def test_loaders_that_begin_at_other_steps_are_not_compared():
    """Another loader of the same line, perhaps."""
    assert judged(DataSetDiffers, ranks_with({"samples": 24}, {"samples": 40, "step": 7})) == []


def test_missing_ranks_give_no_finding():
    """One wrote nothing."""
    assert judged(DataSetDiffers, [*ranks_with({"samples": 24}, {"samples": 40}, world=3), []]) == []
